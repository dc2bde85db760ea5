"""The management API over HTTP, and the keys to it."""

import base64
import json
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

import httpx
import pytest

from tests.receivers import Receiver, answer
from tests.site import Site, until

INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")
NO_LIMITS = dict.fromkeys(["max_fields", "max_field_name_length", "max_field_value_length", "rate_limit"])
NO_SUCH_ID = "dlv_00000000000000000000000000"


@pytest.fixture(scope="module")
def site(shared_site: Site) -> Site:
    return shared_site


def problem(answer: httpx.Response, status: int, code: str) -> dict[str, Any]:
    assert answer.headers["content-type"] == "application/problem+json"
    content: dict[str, Any] = answer.json()
    assert (answer.status_code, content["status"], content["code"]) == (status, status, code)
    return content


# Forms


def test_a_form_is_created_shown_and_listed(site: Site) -> None:
    created = site.create("/forms", {"id": "new-form_1", "name": "Fragen an Zoë"})
    assert created == {
        "id": "new-form_1",
        "name": "Fragen an Zoë",
        "is_active": True,
        "redirect_url": None,
        "allowed_origins": [],
        "honeypot_field": None,
        "duplicate_window_seconds": None,
        "limits": NO_LIMITS,
        "created_at": created["created_at"],
    }
    assert INSTANT.fullmatch(created["created_at"])
    assert site.read("/forms/new-form_1") == created
    assert created in site.read("/forms")["items"]


def test_a_form_is_changed_closed_opened_and_deleted(site: Site) -> None:
    site.make_form(form_id="changing-form")
    before = site.read("/forms/changing-form")
    rules = {
        "redirect_url": "https://example.com/thanks",
        "allowed_origins": ["https://EXAMPLE.com/", "http://localhost:3000"],
        "honeypot_field": "website",
        "duplicate_window_seconds": 60,
    }

    changed = site.management.patch("/forms/changing-form", json=rules)
    assert changed.status_code == 200
    assert changed.json() == before | rules | {
        "allowed_origins": ["https://example.com", "http://localhost:3000"]
    }
    assert site.read("/forms/changing-form") == changed.json()

    assert site.management.patch("/forms/changing-form", json={"is_active": False}).status_code == 200
    assert site.public.post("/f/changing-form", data={"a": "1"}).status_code == 409
    opened = site.management.patch("/forms/changing-form", json={"is_active": True, "redirect_url": None})
    assert opened.json()["redirect_url"] is None
    assert opened.json()["honeypot_field"] == "website"

    kept = site.post({"a": "1"}, form_id="changing-form")
    assert (
        "is_active"
        in problem(site.management.delete("/forms/changing-form"), 409, "form_not_empty")["detail"]
    )
    site.management.delete(f"/submissions/{kept}")
    assert site.management.delete("/forms/changing-form").status_code == 204
    assert site.management.get("/forms/changing-form").status_code == 404


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"name": ""}, "name"),
        ({"redirect_url": "javascript:alert(1)"}, "redirect_url"),
        ({"redirect_url": "/relative"}, "redirect_url"),
        ({"allowed_origins": ["example.com"]}, "allowed_origins"),
        ({"allowed_origins": ["https://example.com/path"]}, "allowed_origins"),
        ({"honeypot_field": ""}, "honeypot_field"),
        ({"duplicate_window_seconds": -1}, "duplicate_window_seconds"),
        ({"id": "other"}, "id"),
    ],
)
def test_a_change_of_a_form_that_breaks_a_rule_changes_nothing(
    site: Site, change: dict[str, object], field: str
) -> None:
    form_id = f"keeps-{abs(hash(str(change))) % 10**9}"
    site.make_form(form_id=form_id)
    before = site.read(f"/forms/{form_id}")

    refused = site.management.patch(f"/forms/{form_id}", json={"is_active": False} | change)

    assert field in str(problem(refused, 422, "invalid_request")["errors"])
    assert site.read(f"/forms/{form_id}") == before


def test_an_id_is_taken_once(site: Site) -> None:
    site.make_form(form_id="taken")
    again = site.management.post("/forms", json={"id": "taken", "name": "Again"})
    assert "taken" in problem(again, 409, "conflict")["detail"]


@pytest.mark.parametrize(
    ("content", "field"),
    [
        ({"id": "UPPER", "name": "x"}, "id"),
        ({"id": "ab", "name": "x"}, "id"),
        ({"id": "a" * 65, "name": "x"}, "id"),
        ({"id": "good", "name": ""}, "name"),
        ({"id": "good", "name": "a\0b"}, "name"),
        ({"id": "good", "name": "x" * 201}, "name"),
        ({"id": "good"}, "name"),
        ({"id": 1234, "name": "x"}, "id"),
        ({"id": "good", "name": "x", "is_active": "yes"}, "is_active"),
        ({"id": "good", "name": "x", "colour": "red"}, "colour"),
    ],
)
def test_a_form_that_breaks_a_rule_is_refused_and_the_field_named(
    site: Site, content: dict[str, object], field: str
) -> None:
    refusal = problem(site.management.post("/forms", json=content), 422, "invalid_request")
    (error,) = refusal["errors"]
    assert error["field"] == field
    assert error["detail"]


def test_several_broken_rules_are_named_at_once(site: Site) -> None:
    refusal = problem(
        site.management.post("/forms", json={"id": 1, "is_active": "x"}), 422, "invalid_request"
    )
    assert {error["field"] for error in refusal["errors"]} == {"id", "name", "is_active"}


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"\xff", b'{"id": "\\ud800abc", "name": "x"}', b'{"id": "good", "name": "\\ud800"}'],
)
def test_a_body_that_is_no_form_at_all_is_refused(site: Site, body: bytes) -> None:
    answer = site.management.post("/forms", content=body, headers={"content-type": "application/json"})
    assert answer.headers["content-type"] == "application/problem+json"
    assert (answer.status_code, answer.json()["code"]) in {(400, "invalid_request"), (422, "invalid_request")}


# Destinations


def test_a_destination_is_changed_field_by_field(site: Site) -> None:
    site.make_form("http://127.0.0.1:9/hook", form_id="changing")
    (made,) = site.read("/forms/changing/destinations")["items"]
    path = f"/destinations/{made['id']}"

    changed = site.management.patch(path, json={"url": "http://127.0.0.1:9/new", "max_in_flight": 3})
    assert changed.status_code == 200
    assert changed.json() == made | {"url": "http://127.0.0.1:9/new", "max_in_flight": 3}
    disabled = site.management.patch(path, json={"state": "disabled", "headers": {"x-key": "v"}})
    assert disabled.json() == changed.json() | {"state": "disabled", "headers": ["x-key"]}
    assert site.management.patch(path, json={}).json() == disabled.json()
    assert site.read(path) == disabled.json()


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"url": "ftp://example.com"}, "url"),
        ({"url": "http://10.0.0.1/"}, "url"),
        ({"max_in_flight": 0}, "max_in_flight"),
        ({"max_in_flight": "3"}, "max_in_flight"),
        ({"state": "asleep"}, "state"),
        ({"headers": {"Host": "example.com"}}, "headers"),
        ({"headers": {"x-a": "one\r\ntwo: 2"}}, "headers"),
        ({"secret": "whsec_mine"}, "secret"),
    ],
)
def test_a_change_that_breaks_a_rule_is_refused_whole(
    site: Site, change: dict[str, object], field: str
) -> None:
    form_id = f"refusing-{abs(hash(str(change))) % 10**9}"
    site.make_form("http://127.0.0.1:9/hook", form_id=form_id)
    (made,) = site.read(f"/forms/{form_id}/destinations")["items"]

    refused = site.management.patch(f"/destinations/{made['id']}", json={"max_in_flight": 5} | change)

    assert field in str(problem(refused, 422, "invalid_request")["errors"])
    assert site.read(f"/destinations/{made['id']}") == made


def test_a_destinations_secret_is_shown_once(site: Site) -> None:
    site.make_form(form_id="with-destination")
    made = site.create("/forms/with-destination/destinations", {"url": "http://127.0.0.1:9/hook"})
    secret = made.pop("secret")
    assert len(base64.b64decode(secret.removeprefix("whsec_"), validate=True)) == 32
    assert made == {
        "id": made["id"],
        "form_id": "with-destination",
        "url": "http://127.0.0.1:9/hook",
        "state": "active",
        "headers": [],
        "max_in_flight": 10,
        "created_at": made["created_at"],
    }
    assert made["id"].startswith("dst_")
    assert site.read(f"/destinations/{made['id']}") == made
    assert site.read("/forms/with-destination/destinations") == {"items": [made], "next_cursor": None}


@pytest.mark.parametrize(
    ("url", "rule"),
    [
        ("ftp://example.com/", "https://"),
        ("https://", "host"),
        ("https://user:pass@example.com/", "user name"),
        ("https://example.com/#part", "fragment"),
        ("https://exämple.com/", "ASCII"),
        ("https://example.com/a b", "spaces"),
        ("http://10.0.0.1/hook", "FORMS_WEBHOOK_ALLOWED_NETWORKS"),
        ("https://example.com/" + "x" * 2_048, "2048"),
    ],
)
def test_an_address_that_may_not_be_called_is_refused_with_the_reason(
    site: Site, url: str, rule: str
) -> None:
    if not site.management.get("/forms/odd-urls").is_success:
        site.make_form(form_id="odd-urls")
    refusal = problem(
        site.management.post("/forms/odd-urls/destinations", json={"url": url}), 422, "invalid_request"
    )
    (error,) = refusal["errors"]
    assert error["field"] == "url"
    assert rule in error["detail"].replace(",", "")
    assert site.read("/forms/odd-urls/destinations")["items"] == []


def test_a_destination_needs_its_form(site: Site) -> None:
    made = site.management.post("/forms/nowhere/destinations", json={"url": "http://127.0.0.1:9/hook"})
    assert "form" in problem(made, 404, "not_found")["detail"]
    problem(site.management.get("/forms/nowhere/destinations"), 404, "not_found")


# Submissions, deliveries and replay


async def test_deliveries_are_listed_by_every_filter_and_a_failed_one_is_replayed(
    database_url: str,
) -> None:
    with Site(database_url) as site:
        site.start_api()
        worker = site.start_worker()
        async with Receiver(answer(404), answer(204)) as moody, Receiver() as kind:
            site.make_form(moody.url())
            site.make_form(kind.url(), form_id="other")
            first = site.post({"a": "1"})
            failed = await site.ended_delivery_of(first)
            second = site.post({"a": "2"}, form_id="other")
            delivered = await site.ended_delivery_of(second)

            def listed(**parameters: str | int) -> list[str]:
                return [found["id"] for found in site.read("/deliveries", **parameters)["items"]]

            assert listed() == [delivered["id"], failed["id"]]
            assert (
                listed(state="failed")
                == listed(form_id="contact")
                == listed(submission_id=first)
                == [failed["id"]]
            )
            assert (
                listed(destination_id=delivered["destination_id"])
                == listed(state="delivered")
                == [delivered["id"]]
            )
            assert (
                listed(state="failed", form_id="other")
                == listed(state="pending")
                == listed(form_id="unknown")
                == []
            )
            (in_list,) = site.read("/deliveries", state="failed")["items"]
            assert in_list == {
                name: value for name, value in failed.items() if name not in {"attempts", "explanation"}
            }
            assert failed | {"attempts": None} == {
                "id": failed["id"],
                "message_id": failed["message_id"],
                "submission_id": first,
                "form_id": "contact",
                "destination_id": failed["destination_id"],
                "destination_url": moody.url(),
                "state": "failed",
                "attempt_count": 1,
                "cycle_attempt_count": 1,
                "next_attempt_at": None,
                "created_at": failed["created_at"],
                "completed_at": failed["completed_at"],
                "failure_reason": "rejected",
                "explanation": "The receiver refused it for good; replay it once the receiver accepts it."
                " The last attempt: HTTP 404.",
                "attempts": None,
            }
            (attempt,) = failed["attempts"]
            assert attempt.keys() == {
                "number", "started_at", "duration_ms", "outcome", "response_status", "error", "response_excerpt",
                "truncated", "remote_address", "late",
            }  # fmt: skip

            replayed = site.management.post(f"/deliveries/{failed['id']}/replay")
            assert replayed.status_code == 200
            assert replayed.json()["cycle_attempt_count"] == 0
            again = await site.ended_delivery_of(first)
            assert (again["state"], again["attempt_count"], again["cycle_attempt_count"]) == (
                "delivered",
                2,
                1,
            )
            assert [one["number"] for one in again["attempts"]] == [1, 2]
            assert len({request.header("webhook-id")[0] for request in moody.requests}) == 1
            assert len({request.body for request in moody.requests}) == 1

            refusal = site.management.post(f"/deliveries/{failed['id']}/replay")
            assert "this one is delivered" in problem(refusal, 409, "conflict")["detail"]
        assert [line.partition(": delivery.failed: ")[2] for line in worker.complaints()] == [
            f"{failed['id']} to {failed['destination_id']}: rejected"
        ]


def test_what_waits_cannot_be_replayed(site: Site) -> None:
    site.make_form("http://127.0.0.1:9/nobody", form_id="waits")
    delivery = site.delivery_of(site.post(form_id="waits"))
    assert delivery["next_attempt_at"] == delivery["created_at"]
    refusal = site.management.post(f"/deliveries/{delivery['id']}/replay")
    assert "this one is pending" in problem(refusal, 409, "conflict")["detail"]


def test_lists_come_in_pages_that_neither_repeat_nor_leave_out(site: Site) -> None:
    secrets = site.make_form(
        "http://127.0.0.1:9/1", "http://127.0.0.1:9/2", "http://127.0.0.1:9/3", form_id="paged"
    )
    assert len(secrets) == 3
    submissions = [site.post({"n": str(number)}, form_id="paged") for number in range(7)]

    assert [one["id"] for one in paged(site, "/submissions", form_id="paged")] == submissions[::-1]
    deliveries = [one["id"] for one in paged(site, "/deliveries", form_id="paged")]
    assert len(set(deliveries)) == len(deliveries) == 21
    assert deliveries == sorted(deliveries, reverse=True)
    destinations = [one["id"] for one in paged(site, "/forms/paged/destinations")]
    assert len(set(destinations)) == 3
    forms = [one["id"] for one in paged(site, "/forms")]
    assert "paged" in forms
    assert forms == sorted(set(forms))


def paged(site: Site, path: str, **parameters: str) -> Iterator[dict[str, Any]]:
    """All items, two a page."""
    cursor: dict[str, str] = {}
    for _ in range(100):
        page = site.read(path, limit=2, **parameters, **cursor)
        assert len(page["items"]) <= 2
        yield from page["items"]
        if page["next_cursor"] is None:
            return
        assert len(page["items"]) == 2
        cursor = {"cursor": page["next_cursor"]}
    raise AssertionError("the pages do not end")


def test_a_submission_is_shown_with_its_fields_in_order(site: Site) -> None:
    site.make_form(form_id="shown")
    fields = {"z": ["1", "2"], "a": ["Zoë 👋"], "名前": [""]}
    submission_id = site.post(dict(fields), form_id="shown")
    shown = site.read(f"/submissions/{submission_id}")
    assert shown == {
        "id": submission_id,
        "form_id": "shown",
        "received_at": shown["received_at"],
        "field_count": 3,
        "is_spam": False,
        "fields": fields,
    }
    assert list(shown["fields"]) == list(fields)
    (in_list,) = site.read("/submissions", form_id="shown")["items"]
    assert in_list == {name: value for name, value in shown.items() if name != "fields"}


@pytest.mark.parametrize(
    "query",
    [
        "/deliveries?state=unknown",
        "/deliveries?limit=0",
        "/deliveries?limit=101",
        "/deliveries?limit=many",
        "/deliveries?cursor=%00",
        "/deliveries?form_id=%00",
        "/deliveries?destination_id=caf%C3%A9",
        "/deliveries?submission_id=a%20b",
        "/submissions?form_id=%FF",
        "/submissions?cursor=" + "a" * 65,
        "/submissions?cursor=sub_00000000000000000000000000",
        "/submissions?cursor=" + "9" * 18 + "-sub_0",
        "/submissions?received_after=yesterday",
        "/submissions?received_after=2026-11-29",
        "/submissions?received_after=2026-11-29T12:00:00",
        "/submissions?received_before=2026-02-30T12:00:00Z",
        "/submissions?received_before=2026-11-29T12:00:00+01:00",
        "/submissions?q=",
        "/submissions?q=%00",
        "/submissions?q=" + "a" * 201,
        "/submissions?spam=maybe",
        "/submissions?from=2026-11-29T12:00:00Z",
        "/deliveries?status=failed",
        "/workers?limit=1",
        "/forms?caf%C3%A9=1",
        "/forms?cursor=A",
    ],
)
def test_a_query_that_makes_no_sense_is_refused_and_the_parameter_named(site: Site, query: str) -> None:
    refusal = problem(site.management.get(query), 422, "invalid_request")
    (error,) = refusal["errors"]
    assert error["field"] == unquote(query.partition("?")[2].partition("=")[0])


def test_a_parameter_that_nothing_knows_is_refused_and_those_that_are_known_named(site: Site) -> None:
    refusal = problem(site.management.get("/submissions?since=2026"), 422, "invalid_request")
    assert refusal["detail"] == (
        "since is not known here; known are form_id, spam, received_after, received_before, q, limit, cursor."
    )
    refusal = problem(site.management.post("/forms?dry_run=true", json={}), 422, "invalid_request")
    assert refusal["detail"] == "dry_run is not known here: none is."
    refusal = problem(site.management.get("/forms?%00%E2%80%AE=1"), 422, "invalid_request")
    assert refusal["errors"][0]["field"] == "\N{REPLACEMENT CHARACTER}" * 2
    assert site.management.get("/deliveries?state=failed&limit=1").status_code == 200
    assert site.management.get("/submissions?since=1", headers={"authorization": ""}).status_code == 401
    assert site.management.options("/submissions?since=1").status_code == 204


def test_submissions_are_found_by_time_and_by_text(site: Site) -> None:
    site.make_form(form_id="searched")
    ids = [site.post({"Name": f"Zoë {number}"}, form_id="searched") for number in range(3)]
    middle = site.read(f"/submissions/{ids[1]}")["received_at"]

    def found(**parameters: str) -> list[str]:
        return [one["id"] for one in site.read("/submissions", form_id="searched", **parameters)["items"]]

    assert found(received_after=middle) == ids[2:]
    assert found(received_before=middle) == ids[:1]
    assert found(received_after="2020-01-01T00:00:00+14:00", received_before=middle) == ids[:1]
    assert found(received_after="0001-01-01T00:00:00Z") == ids[::-1]
    assert found(received_before="9999-12-31T23:59:59Z") == ids[::-1]
    assert found(q="zoë 1") == [ids[1]]
    assert found(q="NAME") == ids[::-1]
    assert found(q="zoe 1") == []


@pytest.mark.parametrize("depth", [1_000, 100_000])
@pytest.mark.parametrize(
    ("method", "path"),
    [("POST", "/forms"), ("PATCH", "/forms/deep"), ("POST", "/destinations/dst_0/rotate-secret")],
)
def test_json_that_is_nested_too_deeply_is_no_failure_of_ours(
    site: Site, method: str, path: str, depth: int
) -> None:
    answer = site.management.request(
        method, path, content="[" * depth + "]" * depth, headers={"content-type": "application/json"}
    )
    assert answer.status_code in {400, 422}
    assert answer.json()["code"] == "invalid_request"


@pytest.mark.parametrize("until", ["5", '"2026-11-29"', '"tomorrow"', "[]", "{}", "true", "1e400"])
def test_an_instant_that_is_none_is_no_failure_of_ours(site: Site, until: str) -> None:
    answer = site.management.post(
        "/destinations/dst_0/rotate-secret",
        content=f'{{"previous_valid_until": {until}}}',
        headers={"content-type": "application/json"},
    )
    assert answer.status_code in {400, 422}


def test_a_form_has_limits_of_its_own_that_are_replaced_as_a_whole_and_never_wider(site: Site) -> None:
    limits = {
        "max_fields": 2,
        "max_field_name_length": 5,
        "max_field_value_length": 7,
        "rate_limit": {"requests": 10, "window_seconds": 60},
    }
    site.create("/forms", {"id": "tight", "name": "Tight", "limits": limits})
    assert site.read("/forms/tight")["limits"] == limits
    for fields, code in (
        ({"a": ["1", "2", "3"]}, "too_many_fields"),
        ({"longer": "1"}, "field_name_too_long"),
        ({"short": "12345678"}, "field_value_too_long"),
    ):
        assert site.public.post("/f/tight", data=fields).json()["code"] == code
    site.post({"short": ["1234567", "1"]}, form_id="tight")

    refusal = site.management.patch("/forms/tight", json={"limits": {"max_fields": 101}})
    refused = problem(refusal, 422, "invalid_request")
    assert refused["errors"] == [
        {"field": "limits.max_fields", "detail": "must be at most 100, as FORMS_MAX_FIELDS says."}
    ]
    assert site.read("/forms/tight")["limits"] == limits

    site.management.patch("/forms/tight", json={"limits": {"max_fields": 1}})
    assert site.read("/forms/tight")["limits"] == NO_LIMITS | {"max_fields": 1}
    site.management.patch("/forms/tight", json={"name": "Wide"})
    assert site.read("/forms/tight")["limits"] == NO_LIMITS | {"max_fields": 1}
    site.management.patch("/forms/tight", json={"limits": None})
    assert site.read("/forms/tight")["limits"] == NO_LIMITS


@pytest.mark.parametrize(
    ("limits", "field"),
    [
        ({"max_fields": 0}, "max_fields"),
        ({"max_field_name_length": 129}, "limits.max_field_name_length"),
        ({"max_field_value_length": 10**30}, "limits.max_field_value_length"),
        ({"max_fields": True}, "max_fields"),
        ({"max_body_bytes": 5}, "max_body_bytes"),
        ({"rate_limit": {"requests": 0, "window_seconds": 1}}, "requests"),
        ({"rate_limit": {"requests": 1}}, "window_seconds"),
        ({"rate_limit": {"requests": 1, "window_seconds": 1.5}}, "window_seconds"),
    ],
)
def test_limits_that_cannot_be_are_refused_and_named(
    site: Site, limits: dict[str, object], field: str
) -> None:
    answer = site.management.post("/forms", json={"id": "never-made", "name": "x", "limits": limits})
    (error,) = problem(answer, 422, "invalid_request")["errors"]
    assert error["field"].endswith(field)


@pytest.mark.parametrize("path", ["/forms/{}", "/destinations/{}", "/submissions/{}", "/deliveries/{}"])
@pytest.mark.parametrize(
    "odd", [NO_SUCH_ID, "%00", "a%00b", "%FF%FE", "caf%C3%A9", "a%20b", "a" * 200, "%F0%9F%91%8B", "..%2F.."]
)
def test_what_is_not_there_is_not_found_whatever_its_id_looks_like(site: Site, path: str, odd: str) -> None:
    problem(site.management.get(path.format(odd)), 404, "not_found")


@pytest.mark.parametrize("odd", [NO_SUCH_ID, "%00", "%FF", "a%00b"])
def test_what_is_not_there_is_not_replayed(site: Site, odd: str) -> None:
    problem(site.management.post(f"/deliveries/{odd}/replay"), 404, "not_found")


def test_an_address_that_leads_nowhere_is_a_problem_too(site: Site) -> None:
    problem(site.management.get("/nothing"), 404, "not_found")
    problem(site.public.get("/"), 404, "not_found")
    problem(site.management.delete("/forms"), 405, "method_not_allowed")


# Keys


@pytest.mark.parametrize(
    "authorization",
    [
        None,
        "",
        "Bearer",
        "Bearer nonsense",
        "Bearer hym_live_" + "A" * 43,
        "Bearer hym_live_" + "A" * 42,
        "Bearer hym_live_" + "A" * 5_000,
        "Basic {key}",
        "{key}",
        "Bearer {key}x",
        "Bearer x{key}",
    ],
)
@pytest.mark.parametrize("path", ["/forms", "/deliveries", "/submissions/sub_1", "/destinations/dst_1"])
def test_every_bad_key_gets_the_same_answer(site: Site, path: str, authorization: str | None) -> None:
    headers = {} if authorization is None else {"authorization": authorization.format(key=site.key)}
    answer = site.public.get(f"/api/v1{path}", headers=headers)
    refusal = problem(answer, 401, "unauthorized")
    assert answer.headers["www-authenticate"] == "Bearer"
    assert refusal == {
        "type": "about:blank",
        "title": "A key is needed",
        "status": 401,
        "detail": "Send a valid key: Authorization: Bearer hym_live_…; `hymical keys create` makes one.",
        "code": "unauthorized",
    }


def test_without_a_key_nothing_is_changed(site: Site) -> None:
    answer = site.public.post("/api/v1/forms", json={"id": "unasked", "name": "x"})
    problem(answer, 401, "unauthorized")
    problem(site.management.get("/forms/unasked"), 404, "not_found")


def test_a_key_is_made_listed_used_and_revoked_on_the_command_line(site: Site) -> None:
    made = site.run("keys", "create", "--name", "Zoë's laptop", "--json")
    key = json.loads(made.stdout)
    text = key.pop("key")
    headers = {"authorization": f"Bearer {text}"}
    assert re.fullmatch(r"hym_live_[A-Za-z0-9_-]{43}", text)
    assert site.public.get("/api/v1/forms", headers=headers).status_code == 200

    listed = site.run("keys", "list", "--json")
    assert key in json.loads(listed.stdout)["items"]
    assert text not in listed.stdout
    assert site.count("keys", f"position('{text}' in keys::text) > 0 OR digest = '{text}'::bytea") == 0

    revoked = site.run("keys", "revoke", key["id"])
    assert (revoked.returncode, revoked.stdout) == (0, f"{key['id']} is revoked\n")
    problem(site.public.get("/api/v1/forms", headers=headers), 401, "unauthorized")
    assert "revoked" in site.run("keys", "list").stdout

    plain = site.run("keys", "create", "--name", "plain")
    assert re.fullmatch(r"hym_live_[A-Za-z0-9_-]{43}\n", plain.stdout)


def test_a_key_is_made_listed_used_and_revoked_over_http(site: Site) -> None:
    made = site.create("/keys", {"name": "Zoë's phone", "expires_at": "2100-01-01T01:00:00+01:00"})
    text = made.pop("key")
    assert made == {
        "id": made["id"],
        "name": "Zoë's phone",
        "created_at": made["created_at"],
        "expires_at": "2100-01-01T00:00:00.000000Z",
        "revoked_at": None,
    }
    headers = {"authorization": f"Bearer {text}"}
    assert site.public.get("/api/v1/forms", headers=headers).status_code == 200
    assert made in site.read("/keys", limit=100)["items"]
    assert text not in site.management.get("/keys").text

    assert site.management.delete(f"/keys/{made['id']}").status_code == 204
    problem(site.public.get("/api/v1/forms", headers=headers), 401, "unauthorized")
    (revoked,) = [key for key in site.read("/keys", limit=100)["items"] if key["id"] == made["id"]]
    assert INSTANT.fullmatch(revoked["revoked_at"])
    problem(site.management.delete("/keys/key_unknown"), 404, "not_found")


@pytest.mark.parametrize(
    ("field", "asked"),
    [
        ("name", {"name": ""}),
        ("name", {}),
        ("name", {"name": 5}),
        ("expires_at", {"name": "x", "expires_at": "2020-01-01T00:00:00Z"}),
        ("expires_at", {"name": "x", "expires_at": "2100-01-01T00:00:00"}),
        ("expires_at", {"name": "x", "expires_at": "tomorrow"}),
        ("expires_at", {"name": "x", "expires_at": 4102444800}),
        ("scopes", {"name": "x", "scopes": ["read"]}),
    ],
)
def test_a_key_that_cannot_be_made_is_refused_by_its_field(
    site: Site, field: str, asked: dict[str, Any]
) -> None:
    refused = problem(site.management.post("/keys", json=asked), 422, "invalid_request")
    assert [error["field"] for error in refused["errors"]] == [field]


def test_an_instant_that_is_a_number_is_refused_by_its_field_wherever_one_is_taken(site: Site) -> None:
    site.make_form(form_id="instant-form")
    destination = site.create("/forms/instant-form/destinations", {"url": "http://127.0.0.1:9/"})
    rotation = {"previous_valid_until": 4102444800}
    refused = site.management.post(f"/destinations/{destination['id']}/rotate-secret", json=rotation)
    errors = problem(refused, 422, "invalid_request")["errors"]
    assert [error["field"] for error in errors] == ["previous_valid_until"]


def test_an_expired_key_gets_the_same_answer_as_any_other_bad_one(site: Site) -> None:
    made = json.loads(site.run("keys", "create", "--name", "brief", "--expires-in", "90d", "--json").stdout)
    headers = {"authorization": f"Bearer {made['key']}"}
    assert site.public.get("/api/v1/forms", headers=headers).status_code == 200
    assert f"until {made['expires_at']}  brief" in site.run("keys", "list").stdout

    site.execute(
        "UPDATE keys SET created_at = now() - interval '91 days', expires_at = now() WHERE id = %s",
        made["id"],
    )

    refused = site.public.get("/api/v1/forms", headers=headers)
    assert refused.status_code == 401
    assert refused.json() == site.public.get("/api/v1/forms", headers={"authorization": "Bearer x"}).json()


def test_a_key_s_time_is_a_duration(site: Site) -> None:
    ended = site.run("keys", "create", "--name", "x", "--expires-in", "next year")
    assert ended.returncode == 2
    assert "must be a duration" in ended.stderr


def test_a_key_that_is_not_there_is_not_revoked(site: Site) -> None:
    ended = site.run("keys", "revoke", "key_unknown")
    assert (ended.returncode, ended.stdout, ended.stderr) == (1, "", "hymical: there is no key key_unknown\n")


def test_a_key_needs_a_printable_name(site: Site) -> None:
    ended = site.run("keys", "create", "--name", "two\nlines")
    assert ended.returncode == 1
    assert ended.stderr == "hymical: name must be 1 to 200 printable characters\n"


# Secrets


async def test_no_secret_is_in_any_answer_or_log(database_url: str) -> None:
    with Site(database_url, webhook_retry_schedule="100ms") as site:
        processes = [site.start_api(), site.start_worker()]
        async with Receiver(answer(500), answer(404)) as receiver:
            (secret,) = site.make_form(receiver.url())
            delivery = await site.ended_delivery_of(site.post({"card": "4111-very-private"}))
        # its receiver is gone now
        await until(
            lambda: site.management.post(f"/deliveries/{delivery['id']}/replay").is_success, "replayed"
        )
        await site.ended_delivery_of(delivery["submission_id"])
        answers = [
            site.management.get(path).text
            for path in (
                "/forms",
                "/forms/contact",
                "/forms/contact/destinations",
                f"/destinations/{delivery['destination_id']}",
                "/deliveries",
                f"/deliveries/{delivery['id']}",
                "/submissions",
            )
        ]
        answers.append(site.public.get("/schema/openapi.json").text)
        said = [line for process in processes for line in process.said]

    for text in (*answers, *said):
        assert secret not in text
        assert secret.removeprefix("whsec_") not in text
        assert site.key not in text
        assert "4111-very-private" not in text
