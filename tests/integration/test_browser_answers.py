"""What browsers without JavaScript, and scripts on other sites, are answered by a real API process."""

import socket
from contextlib import closing
from urllib.parse import urlsplit

import httpx
import pytest

from hymical.adapters.embedded.server import embedded_server, temporary_data_folder
from hymical.adapters.postgres.schema import migrate
from tests.site import Site

CHROMIUM = (
    "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,image/apng,*/*;q=0.8,"
    "application/signed-exchange;v=b3;q=0.7"
)
AS_BROWSER = {"accept": CHROMIUM}
HERE, THERE = "https://www.example.com", "https://elsewhere.example"
THANKS = "https://www.example.com/thanks?from=hymical"
URLENCODED = {"content-type": "application/x-www-form-urlencoded"}


@pytest.fixture(scope="module")
def site(shared_site: Site) -> Site:
    shared_site.make_form(form_id="open")
    shared_site.make_form(form_id="closed", is_active=False)
    rules: dict[str, object] = {"redirect_url": THANKS, "allowed_origins": [HERE]}
    shared_site.create("/forms", {"id": "listed", "name": "Listed", "is_active": True, **rules})
    shared_site.create("/forms", {"id": "listed-closed", "name": "Listed", "is_active": False, **rules})
    return shared_site


def vary(answer: httpx.Response) -> set[str]:
    return {name.strip().lower() for name in answer.headers.get("vary", "").split(",")}


def grants(answer: httpx.Response) -> dict[str, str]:
    """The CORS headers of an answer."""
    return {name: value for name, value in answer.headers.items() if name.startswith("access-control-")}


# A browser without JavaScript


def test_a_browser_that_posts_goes_on_to_the_thank_you_page(site: Site) -> None:
    answer = site.public.post("/f/open", data={"name": "303"}, headers=AS_BROWSER)

    assert (answer.status_code, answer.headers["location"]) == (303, "/f/open/thanks")
    assert vary(answer) == {"accept", "origin"}

    page = site.public.get(answer.headers["location"], headers=AS_BROWSER)
    assert page.status_code == 200
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert "Thank you" in page.text


def test_the_thank_you_page_stores_nothing(site: Site) -> None:
    before = site.count("submissions")
    for _ in range(3):
        assert site.public.get("/f/open/thanks", headers=AS_BROWSER).status_code == 200

    assert site.count("submissions") == before


def test_a_browser_goes_on_to_the_address_of_the_form(site: Site) -> None:
    answer = site.public.post("/f/listed", data={"name": "on"}, headers=AS_BROWSER)

    assert (answer.status_code, answer.headers["location"]) == (303, THANKS)


@pytest.mark.parametrize("wanted", [f"{HERE}/other#there", f"{HERE}:443/"])
def test_a_browser_goes_on_to_an_allowed_next_address(site: Site, wanted: str) -> None:
    answer = site.public.post("/f/listed", data={"name": wanted, "_next": wanted}, headers=AS_BROWSER)

    assert (answer.status_code, answer.headers["location"]) == (303, wanted)


@pytest.mark.parametrize(
    "wanted",
    [
        f"{THERE}/",
        "//elsewhere.example/",
        "/relative",
        "javascript:alert(1)",
        f"{HERE}.elsewhere.example/",
        f"{HERE}@elsewhere.example/",
        f"{HERE}\\@elsewhere.example/",
        f"{HERE}/\r\nset-cookie: a=b",
        f"{HERE}/ü",
        f"\t{HERE}/",
        "http://www.example.com/",
    ],
)
def test_any_other_next_address_leads_to_the_address_of_the_form(site: Site, wanted: str) -> None:
    answer = site.public.post("/f/listed", data={"name": wanted, "_next": wanted}, headers=AS_BROWSER)

    assert (answer.status_code, answer.headers["location"]) == (303, THANKS)
    assert "set-cookie" not in answer.headers


def test_a_next_address_of_a_form_without_rules_is_not_followed(site: Site) -> None:
    answer = site.public.post("/f/open", data={"name": "n", "_next": f"{HERE}/"}, headers=AS_BROWSER)

    assert answer.headers["location"] == "/f/open/thanks"


def test_a_script_gets_its_receipt_wherever_a_browser_would_go(site: Site) -> None:
    for accept in ("*/*", "application/json", ""):
        answer = site.public.post("/f/listed", data={"name": accept}, headers={"accept": accept})

        assert answer.status_code == 202
        assert answer.json()["form_id"] == "listed"


@pytest.mark.parametrize("form_id", ["unknown", "no", "%00", "a%20b"])
@pytest.mark.parametrize("accept", [CHROMIUM, "*/*"], ids=["browser", "script"])
def test_no_thanks_for_a_form_that_does_not_exist(site: Site, form_id: str, accept: str) -> None:
    answer = site.public.get(f"/f/{form_id}/thanks", headers={"accept": accept})

    assert answer.status_code == 404
    assert "form_not_found" in answer.text


def test_thanks_for_a_script_are_json(site: Site) -> None:
    answer = site.public.get("/f/open/thanks")

    assert answer.status_code == 200
    assert answer.json()["form_id"] == "open"
    assert vary(answer) == {"accept", "origin"}


REFUSED: dict[str, tuple[str, bytes, dict[str, str], int, str]] = {
    "malformed": ("open", b"[1", {"content-type": "application/json"}, 400, "malformed_body"),
    "unknown": ("unknown", b"a=b", URLENCODED, 404, "form_not_found"),
    "closed": ("closed", b"a=b", URLENCODED, 409, "form_closed"),
    "large": ("open", b"a=" + b"b" * 262_144, URLENCODED, 413, "body_too_large"),
    "type": ("open", b"a=b", {"content-type": "text/plain"}, 415, "unsupported_media_type"),
    "long": ("open", b"%3Cb%3E=" + b"b" * 16_385, URLENCODED, 422, "field_value_too_long"),
    "empty": ("open", b"", URLENCODED, 422, "empty_submission"),
    "origin": ("listed", b"a=b", {**URLENCODED, "origin": THERE}, 403, "origin_not_allowed"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_refusal_is_a_page_for_a_browser_and_json_for_a_script(site: Site, case: str) -> None:
    form_id, body, headers, status, code = REFUSED[case]
    before = site.count("submissions")

    page = site.public.post(f"/f/{form_id}", content=body, headers=headers | AS_BROWSER)
    problem = site.public.post(f"/f/{form_id}", content=body, headers=headers)

    assert page.status_code == problem.status_code == status
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert problem.headers["content-type"] == "application/problem+json"
    assert f"<code>{code}</code>" in page.text
    assert "Back button" in page.text
    assert problem.json()["code"] == code
    assert page.headers["cache-control"] == "no-store"
    assert page.headers["content-security-policy"] == "default-src 'none'; style-src 'unsafe-inline'"
    assert page.headers["x-content-type-options"] == "nosniff"
    assert page.headers["referrer-policy"] == "no-referrer"
    assert vary(page) == vary(problem) == {"accept", "origin"}
    assert site.count("submissions") == before


def test_a_field_s_name_is_text_in_a_page(site: Site) -> None:
    _, body, headers, _, _ = REFUSED["long"]
    page = site.public.post("/f/open", content=body, headers=headers | AS_BROWSER).text

    assert "&lt;b&gt;" in page
    assert "<b>" not in page


def test_whoever_opens_the_address_of_a_form_reads_what_it_is_for(site: Site) -> None:
    page = site.public.get("/f/open", headers=AS_BROWSER)

    assert page.status_code == 405
    assert "POST" in page.headers["allow"]
    assert "<code>method_not_allowed</code>" in page.text
    assert "Open the page that holds the form" in page.text


# Scripts on other sites


@pytest.mark.parametrize(
    ("form_id", "origin", "granted"),
    [("open", HERE, "*"), ("open", "null", "*"), ("listed", HERE, HERE), ("listed", "null", "null")],
)
def test_an_allowed_origin_reads_the_receipt(site: Site, form_id: str, origin: str, granted: str) -> None:
    answer = site.public.post(f"/f/{form_id}", json={"from": origin}, headers={"origin": origin})

    assert answer.status_code == 202
    assert answer.headers["access-control-allow-origin"] == granted
    exposed = answer.headers["access-control-expose-headers"]
    assert "retry-after" in exposed
    assert "ratelimit" in exposed
    assert "origin" in vary(answer)


def test_another_origin_is_refused_and_reads_nothing(site: Site) -> None:
    before = site.count("submissions")
    answer = site.public.post("/f/listed", json={"a": "b"}, headers={"origin": THERE})

    assert (answer.status_code, answer.json()["code"]) == (403, "origin_not_allowed")
    assert grants(answer) == {}
    assert "origin" in vary(answer)
    assert site.count("submissions") == before


def test_without_an_origin_nothing_is_granted_but_the_answer_says_that_it_would_differ(site: Site) -> None:
    answer = site.public.post("/f/listed", json={"from": "nowhere"})

    assert answer.status_code == 202
    assert grants(answer) == {}
    assert "origin" in vary(answer)


@pytest.mark.parametrize("case", [case for case in REFUSED if case != "origin"])
@pytest.mark.parametrize("accept", [CHROMIUM, "*/*"], ids=["browser", "script"])
def test_a_script_on_another_site_reads_why_it_was_refused(site: Site, case: str, accept: str) -> None:
    form_id, body, headers, status, _ = REFUSED[case]
    headers = headers | {"origin": HERE, "accept": accept}
    answer = site.public.post(f"/f/{form_id}", content=body, headers=headers)

    assert answer.status_code == status
    assert answer.headers["access-control-allow-origin"] == "*"
    assert "origin" in vary(answer)


@pytest.mark.parametrize(("origin", "granted"), [(HERE, HERE), (THERE, None)])
@pytest.mark.parametrize("case", ["malformed", "large", "type", "empty"])
def test_a_refusal_is_read_by_the_origins_of_the_form_only(
    site: Site, case: str, origin: str, granted: str | None
) -> None:
    _, body, headers, status, _ = REFUSED[case]
    answer = site.public.post("/f/listed", content=body, headers=headers | {"origin": origin})

    assert answer.status_code in {status, 403}
    assert answer.headers.get("access-control-allow-origin") == granted


def test_a_method_that_is_not_allowed_is_read_too(site: Site) -> None:
    answer = site.public.delete("/f/listed", headers={"origin": HERE})

    assert answer.status_code == 405
    assert answer.headers["access-control-allow-origin"] == HERE


def preflight(
    site: Site, form_id: str, origin: str, path: str = "", headers: str = "content-type"
) -> httpx.Response:
    asked = {
        "origin": origin,
        "access-control-request-method": "POST",
        "access-control-request-headers": headers,
    }
    return site.public.options(f"/f/{form_id}{path}", headers=asked)


@pytest.mark.parametrize(
    ("form_id", "origin", "granted"),
    [
        ("open", HERE, "*"),
        ("listed", HERE, HERE),
        ("listed", "null", "null"),
        ("listed-closed", HERE, HERE),
        ("unknown", HERE, "*"),
    ],
)
def test_a_preflight_says_what_may_be_sent(site: Site, form_id: str, origin: str, granted: str) -> None:
    answer = preflight(site, form_id, origin, headers="content-type,idempotency-key,traceparent")

    assert (answer.status_code, answer.content) == (204, b"")
    assert answer.headers["access-control-allow-origin"] == granted
    assert answer.headers["access-control-allow-methods"] == "POST"
    allowed = {name.strip() for name in answer.headers["access-control-allow-headers"].split(",")}
    assert allowed >= {"content-type", "idempotency-key"}
    assert int(answer.headers["access-control-max-age"]) > 0
    assert "origin" in vary(answer)


@pytest.mark.parametrize(
    "origin",
    [THERE, "http://www.example.com", f"{HERE}:8443", f"{HERE}.elsewhere.example", HERE.upper(), "x"],
)
def test_a_preflight_of_another_origin_is_granted_nothing(site: Site, origin: str) -> None:
    answer = preflight(site, "listed", origin)

    assert answer.status_code == 204
    assert grants(answer) == {}
    assert "origin" in vary(answer)


def test_the_thanks_are_read_by_a_script_that_was_sent_on_to_them(site: Site) -> None:
    answer = site.public.get("/f/listed/thanks", headers={"origin": "null"})

    assert answer.headers["access-control-allow-origin"] == "null"
    assert preflight(site, "listed", HERE, "/thanks").headers["access-control-allow-methods"] == "GET"


def test_what_is_not_the_intake_is_not_shared(site: Site) -> None:
    for answer in (
        site.management.get("/forms", headers={"origin": HERE}),
        site.public.get("/health", headers={"origin": HERE}),
        site.public.get("/f/open/more/than/that", headers={"origin": HERE}),
    ):
        assert grants(answer) == {}
        assert "origin" not in vary(answer)


def test_an_origin_is_not_taken_for_a_line_of_the_answer(site: Site) -> None:
    address = urlsplit(site.api_url)
    assert address.hostname is not None
    with closing(socket.create_connection((address.hostname, address.port or 80), timeout=10)) as connection:
        connection.sendall(
            b"OPTIONS /f/listed HTTP/1.1\r\nhost: a\r\norigin: https://\xff\xfe.example\r\nconnection: close\r\n\r\n"
        )
        received = b""
        while piece := connection.recv(65_536):
            received += piece

    assert received.startswith(b"HTTP/1.1 204 ")
    assert b"access-control" not in received


def test_while_the_database_is_away_the_last_known_rules_hold() -> None:
    with temporary_data_folder("hymical-away-") as data, embedded_server(data, durable=False) as server:
        migrate(server.url())
        with Site(server.url()) as site:
            site.start_api()
            site.create("/forms", {"id": "listed", "name": "Listed", "allowed_origins": [HERE]})
            assert preflight(site, "listed", HERE).headers["access-control-allow-origin"] == HERE
            server.stop()

            for origin, granted in ((HERE, HERE), (THERE, None)):
                answer = site.public.post("/f/listed", json={"a": "b"}, headers={"origin": origin})
                assert (answer.status_code, answer.json()["code"]) == (503, "storage_unavailable")
                assert "retry-after" in answer.headers
                assert answer.headers.get("access-control-allow-origin") == granted
                assert preflight(site, "listed", origin).headers.get("access-control-allow-origin") == granted

            page = site.public.post("/f/listed", data={"a": "b"}, headers=AS_BROWSER)
            assert (page.status_code, page.headers["content-type"]) == (503, "text/html; charset=utf-8")
            assert "wait 5 seconds" in page.text
            assert site.public.get("/f/listed/thanks", headers=AS_BROWSER).status_code == 200
