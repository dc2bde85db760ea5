"""Every answer of the public intake, over HTTP, and that a refused post leaves nothing behind."""

import socket
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from urllib.parse import urlsplit

import httpx
import psycopg
import pytest
from psycopg import sql

from tests.database import Databases
from tests.site import Site, until
from tests.wire import Pairs, Posted, json_object, multipart, urlencoded

URLENCODED = {"content-type": "application/x-www-form-urlencoded"}
MULTIPART = {"content-type": "multipart/form-data; boundary=edge"}
LIMIT = 262_144
PIECE = 64 * 1024


@pytest.fixture(scope="module")
def site(shared_site: Site) -> Site:
    shared_site.make_form("http://127.0.0.1:9/nobody", form_id="open")
    shared_site.make_form(form_id="closed", is_active=False)
    return shared_site


@pytest.fixture(scope="module")
def writing_site(databases: Databases) -> Iterator[Site]:
    """For what is to be stored, which the others find nothing of."""
    with databases.migrated() as url, Site(url) as site:
        site.start_api()
        site.make_form(form_id="written")
        yield site


def part(name: str, value: str, more: str = "") -> str:
    return f'--edge\r\nContent-Disposition: form-data; name="{name}"{more}\r\n\r\n{value}\r\n'


def refused(answer: httpx.Response, site: Site, *, status: int, code: str) -> dict[str, object]:
    """The problem, after a look that it is one, and that nothing was stored."""
    assert answer.headers["content-type"] == "application/problem+json"
    problem: dict[str, object] = answer.json()
    assert (answer.status_code, problem["status"], problem["code"]) == (status, status, code)
    assert {"type", "title", "status", "detail", "code"} <= problem.keys()
    assert all(isinstance(problem[name], str) and problem[name] for name in ("type", "title", "detail"))
    for table in ("submissions", "messages", "deliveries"):
        assert site.count(table) == 0
    return problem


@pytest.mark.parametrize(
    "form_id", ["unknown", "no", "UPPER", "a" * 65, "%00", "a%00b", "caf%C3%A9", "%FF", "a%20b"]
)
def test_an_unknown_form_is_not_found(site: Site, form_id: str) -> None:
    answer = site.public.post(f"/f/{form_id}", data={"a": "b"})
    refused(answer, site, status=404, code="form_not_found")


def test_a_closed_form_says_so(site: Site) -> None:
    refused(site.public.post("/f/closed", data={"a": "b"}), site, status=409, code="form_closed")


@pytest.mark.parametrize(
    "content_type", [None, "text/plain", "application/xml", "nonsense", "multipart/mixed; boundary=edge"]
)
def test_another_content_type_is_refused_and_the_right_ones_are_named(
    site: Site, content_type: str | None
) -> None:
    headers = {} if content_type is None else {"content-type": content_type}
    answer = site.public.post("/f/open", content=b"a=b", headers=headers)
    refused(answer, site, status=415, code="unsupported_media_type")
    assert "application/x-www-form-urlencoded" in answer.headers["accept-post"]


def test_a_declared_length_over_the_limit_is_refused(site: Site) -> None:
    answer = site.public.post("/f/open", content=b"a=" + b"b" * (LIMIT - 1), headers=URLENCODED)
    refused(answer, site, status=413, code="body_too_large")


def test_a_declared_length_over_the_limit_is_refused_before_the_body_is_sent(site: Site) -> None:
    with connected(site) as connection:
        connection.sendall(head("content-length: 999999999999"))
        answer = answer_of(connection)
    refused(answer, site, status=413, code="body_too_large")


def test_a_body_of_unknown_length_over_the_limit_is_refused(site: Site) -> None:
    def pieces() -> Iterator[bytes]:
        for _ in range(LIMIT // PIECE + 1):
            yield b"a" * PIECE

    answer = site.public.post("/f/open", content=pieces(), headers=URLENCODED)
    refused(answer, site, status=413, code="body_too_large")


@pytest.mark.parametrize("framing", ["content-length: 8388608", "transfer-encoding: chunked"])
def test_whoever_keeps_on_sending_can_still_read_that_it_is_too_much(site: Site, framing: str) -> None:
    chunked = "chunked" in framing
    piece = b"%x\r\n" % PIECE + b"a" * PIECE + b"\r\n" if chunked else b"a" * PIECE
    with connected(site) as connection:
        connection.sendall(head(framing))
        for _ in range(8 * 1024 * 1024 // PIECE):
            # as simple clients do: everything is sent before anything is read
            connection.sendall(piece)
        answer = answer_of(connection)
    refused(answer, site, status=413, code="body_too_large")


def head(*headers: str) -> bytes:
    lines = [
        "POST /f/open HTTP/1.1",
        "host: localhost",
        "content-type: application/x-www-form-urlencoded",
        *headers,
    ]
    return "\r\n".join([*lines, "", ""]).encode()


def connected(site: Site) -> closing[socket.socket]:
    address = urlsplit(site.api_url)
    assert address.hostname is not None
    return closing(socket.create_connection((address.hostname, address.port or 80), timeout=10))


def answer_of(connection: socket.socket) -> httpx.Response:
    received = b""
    while piece := connection.recv(PIECE):
        received += piece
        start, _, body = received.partition(b"\r\n\r\n")
        lines = start.decode().split("\r\n")
        headers = [(name, value.strip()) for name, _, value in (line.partition(":") for line in lines[1:])]
        response = httpx.Response(int(lines[0].split(" ")[1]), headers=headers, content=body)
        if body and len(body) >= int(response.headers["content-length"]):
            return response
    raise AssertionError(f"no whole answer: {received!r}")


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        ({"content-type": "multipart/form-data"}, part("a", "b") + "--edge--\r\n"),
        (MULTIPART, "no boundary at all"),
        (MULTIPART, part("a", "b")),
        (MULTIPART, "--edge\r\nContent-Disposition: form-data\r\n\r\nb\r\n--edge--\r\n"),
        ({"content-type": "application/json"}, '{"a": '),
        ({"content-type": "application/json"}, '["a"]'),
    ],
)
def test_a_body_that_is_not_what_its_type_says_is_malformed(
    site: Site, headers: dict[str, str], body: str
) -> None:
    answer = site.public.post("/f/open", content=body, headers=headers)
    refused(answer, site, status=400, code="malformed_body")


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        (URLENCODED, b"a=%FF%FE"),
        (URLENCODED, b"a=\xff"),
        (MULTIPART, part("a", "?").encode().replace(b"?", b"\xff") + b"--edge--\r\n"),
    ],
)
def test_bytes_that_are_no_text_are_undecodable(site: Site, headers: dict[str, str], body: bytes) -> None:
    answer = site.public.post("/f/open", content=body, headers=headers)
    refused(answer, site, status=400, code="undecodable_text")


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        (URLENCODED, ""),
        (URLENCODED, "&&"),
        (MULTIPART, "--edge--\r\n"),
        ({"content-type": "application/json"}, "{}"),
    ],
)
def test_a_form_without_any_field_is_empty(site: Site, headers: dict[str, str], body: str) -> None:
    answer = site.public.post("/f/open", content=body, headers=headers)
    refused(answer, site, status=422, code="empty_submission")


@pytest.mark.parametrize(
    ("fields", "code", "field"),
    [
        ({"n" * 129: "v"}, "field_name_too_long", "n" * 40 + "…"),
        ({"name": "v" * 16_385}, "field_value_too_long", "name"),
        ({"": "v"}, "invalid_field_name", ""),
        ({"a\0b": "v"}, "invalid_field_name", "a\N{REPLACEMENT CHARACTER}b"),
        ({"a\nb": "v"}, "invalid_field_name", "a\N{REPLACEMENT CHARACTER}b"),
        ({"name": "a\0b"}, "invalid_field_value", "name"),
    ],
)
def test_a_field_that_breaks_a_rule_is_named(
    site: Site, fields: dict[str, str], code: str, field: str
) -> None:
    body = str(httpx.QueryParams(fields))
    problem = refused(
        site.public.post("/f/open", content=body, headers=URLENCODED), site, status=422, code=code
    )
    assert problem["errors"] == [{"field": field, "detail": problem["detail"]}]


@pytest.mark.parametrize("value", ["null", '{"nested": 1}', '["a", null]', '"\\ud800"'])
def test_json_that_no_form_could_say_is_an_invalid_value(site: Site, value: str) -> None:
    answer = site.public.post(
        "/f/open", content=f'{{"name": {value}}}', headers={"content-type": "application/json"}
    )
    problem = refused(answer, site, status=422, code="invalid_field_value")
    assert problem["errors"] == [{"field": "name", "detail": problem["detail"]}]


def test_too_many_fields_are_refused_each_repetition_counted(site: Site) -> None:
    refused(site.public.post("/f/open", data={"a": ["b"] * 101}), site, status=422, code="too_many_fields")


def test_a_file_is_refused_and_its_field_named(site: Site) -> None:
    answer = site.public.post(
        "/f/open", data={"a": "b"}, files={"photo": ("photo.png", b"not one", "image/png")}
    )
    problem = refused(answer, site, status=422, code="file_upload_not_supported")
    assert problem["errors"] == [{"field": "photo", "detail": problem["detail"]}]


@pytest.mark.parametrize("method", ["GET", "PUT", "PATCH", "DELETE"])
def test_another_method_is_not_allowed_and_the_right_one_is_named(site: Site, method: str) -> None:
    answer = site.public.request(method, "/f/open")
    refused(answer, site, status=405, code="method_not_allowed")
    assert "POST" in answer.headers["allow"]


def test_what_is_just_within_every_limit_is_accepted(databases: Databases) -> None:
    fields = {"n" * 128: ["v" * 16_384], "other": [str(number) for number in range(99)]}
    with databases.migrated() as url, Site(url) as site:
        site.start_api()
        site.make_form()
        answer = site.public.post("/f/contact", data=fields)
        assert answer.status_code == 202
        assert answer.headers["content-type"] == "application/json"
        receipt = answer.json()
        assert receipt.keys() == {"submission_id", "form_id", "received_at", "field_count", "duplicate"}
        assert (receipt["field_count"], receipt["form_id"], receipt["duplicate"]) == (2, "contact", False)
        assert site.read(f"/submissions/{receipt['submission_id']}")["fields"] == fields


@pytest.mark.parametrize("write", [urlencoded, multipart, json_object])
@pytest.mark.parametrize("line_break", ["\r\n", "\n", "\r"])
def test_a_textarea_filled_to_its_maxlength_is_accepted_each_line_break_counted_once(
    writing_site: Site, write: Callable[[Pairs], Posted], line_break: str
) -> None:
    lines = ["x" * 9] * 99 + ["y" * 10]
    assert len("\n".join(lines)) == 1_000
    writing_site.management.patch("/forms/written", json={"limits": {"max_field_value_length": 1_000}})

    def post(value: str) -> httpx.Response:
        content_type, body = write([("message", value)])
        return writing_site.public.post("/f/written", content=body, headers={"content-type": content_type})

    accepted = post(line_break.join(lines))
    refused = post(line_break.join([*lines, ""]))

    assert accepted.status_code == 202
    stored = writing_site.read(f"/submissions/{accepted.json()['submission_id']}")
    assert stored["fields"] == {"message": ["\n".join(lines)]}
    assert (refused.status_code, refused.json()["code"]) == (422, "field_value_too_long")


@pytest.mark.parametrize(
    ("pairs", "code"),
    [
        ([], "empty_submission"),
        ([("_next", "x"), ("_gotcha", "")], "empty_submission"),
        ([("a", "b")] * 101, "too_many_fields"),
        ([("n" * 129, "v")], "field_name_too_long"),
        ([("name", "v" * 16_385)], "field_value_too_long"),
        ([("", "v")], "invalid_field_name"),
        ([("name", "a\0b")], "invalid_field_value"),
    ],
)
def test_the_same_mistake_has_the_same_code_however_it_was_posted(
    site: Site, pairs: Pairs, code: str
) -> None:
    for write in (urlencoded, multipart, json_object):
        content_type, body = write(pairs)
        answer = site.public.post("/f/open", content=body, headers={"content-type": content_type})
        refused(answer, site, status=422, code=code)


CANARY = "canary-4711"


async def test_no_value_of_a_field_shows_in_an_answer_or_in_a_log(database_url: str) -> None:
    json_type = {"content-type": "application/json"}
    posts: list[tuple[dict[str, str], str, int]] = [
        (URLENCODED, f"a={CANARY}", 202),
        (URLENCODED, f"a={CANARY}%00", 422),
        (URLENCODED, f"a={CANARY}%FF", 400),
        (URLENCODED, f"a={CANARY}{'x' * 20_000}", 422),
        (URLENCODED, f"a={CANARY}" + "&a=1" * 100, 422),
        (URLENCODED, f"a={CANARY}&_charset_={CANARY}", 400),
        (MULTIPART, part("a", CANARY), 400),
        (MULTIPART, part("a", CANARY, f'; filename="{CANARY}"') + "--edge--\r\n", 422),
        (json_type, f'{{"a": "{CANARY}"', 400),
        (json_type, f'{{"a": {{"b": "{CANARY}"}}}}', 422),
        ({"content-type": "text/plain"}, f"a={CANARY}", 415),
        (URLENCODED | {"idempotency-key": "a b"}, f"a={CANARY}", 422),
    ]
    with Site(database_url) as site:
        api = site.start_api()
        site.make_form()
        for headers, body, status in posts:
            for more in ({}, {"accept": "text/html"} if status != 202 else {}):
                answer = site.public.post("/f/contact", content=body, headers=headers | more)
                assert answer.status_code == status
                assert CANARY not in answer.text + str(answer.headers)
        site.execute("ALTER TABLE messages RENAME TO elsewhere")
        failed = site.public.post("/f/contact", data={"a": CANARY})
        assert failed.status_code in {500, 503}
        assert CANARY not in failed.text
        await until(lambda: bool(api.complaints()), "it is logged")
        assert not any(CANARY in line for line in api.said)


def test_limits_come_from_the_settings(site: Site) -> None:
    with Site(site.database_url, max_body_bytes="40", max_fields="2") as small:
        small.start_api()
        refused(small.public.post("/f/open", data={"a": "b" * 40}), small, status=413, code="body_too_large")
        refused(
            small.public.post("/f/open", data={"a": ["b"] * 3}), small, status=422, code="too_many_fields"
        )


async def test_without_its_database_the_api_confirms_nothing_and_recovers_by_itself(
    database_url: str,
) -> None:
    with Site(database_url) as site:
        api = site.start_api()
        site.make_form()
        assert site.public.get("/ready").status_code == 200
        with database_closed(database_url):
            answer = site.public.post("/f/contact", data={"email": "zoe@example.com"})
            ready = site.public.get("/ready")
            health = site.public.get("/health")
        assert answer.headers["content-type"] == "application/problem+json"
        assert (answer.status_code, answer.json()["code"]) == (503, "storage_unavailable")
        assert answer.headers["retry-after"] == "5"
        assert (ready.status_code, ready.json()["code"]) == (503, "storage_unavailable")
        assert (health.status_code, health.json()) == (200, {"status": "ok"})
        assert site.count("submissions") == 0

        await until(lambda: site.public.get("/ready").status_code == 200, "it is ready again")
        site.post()
        assert site.count("submissions") == 1
        assert not any("zoe@example.com" in line for line in api.said)


@contextmanager
def database_closed(database_url: str) -> Iterator[None]:
    """Ends all sessions of a database and lets no new one begin for as long as the block is open."""
    elsewhere = urlsplit(database_url)._replace(path="/postgres").geturl()
    name = urlsplit(database_url).path.removeprefix("/")
    allowing = sql.SQL("ALTER DATABASE {} WITH ALLOW_CONNECTIONS {}")
    with psycopg.connect(elsewhere, autocommit=True) as admin:
        admin.execute(allowing.format(sql.Identifier(name), sql.Literal(False)))
        admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [name])
        try:
            yield
        finally:
            admin.execute(allowing.format(sql.Identifier(name), sql.Literal(True)))
