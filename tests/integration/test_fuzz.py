"""The running API against its own description, and against bodies that nobody would send."""

import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis import APIOperation, Case, GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.database import Databases
from tests.site import Site
from tests.wire import Pairs, Posted, filled_in, json_object, multipart, urlencoded

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
HANGS_AFTER_SECONDS = 10
EXAMPLES = 12
BODIES = 150


@pytest.fixture(scope="module")
def site(databases: Databases) -> Iterator[Site]:
    with databases.migrated() as url, Site(url) as site:
        site.start_api()
        yield site


@pytest.fixture
def real_ids(site: Site, request: pytest.FixtureRequest) -> dict[str, list[str]]:
    """Ids that are there, by the parameter that takes them; otherwise all that is found is that nothing is."""
    form_id = f"form-{zlib.crc32(request.node.name.encode())}"
    site.make_form("http://127.0.0.1:9/nobody", form_id=form_id)
    submissions = [
        site.post(form_id=form_id),
        site.post({"_gotcha": "x", "email": "bot@example.com"}, form_id=form_id),
    ]
    export = site.management.post("/exports", json={"form_id": form_id, "format": "csv"}).json()
    return {
        "form_id": [form_id],
        "job_id": [export["id"]],
        "key_id": [site.create("/keys", {"name": form_id})["id"]],
        # of a schedule, and as good a one for a queue
        "name": ["clean-up"],
        "destination_id": [one["id"] for one in site.read(f"/forms/{form_id}/destinations")["items"]],
        "submission_id": submissions,
        "delivery_id": [one["id"] for one in site.read("/deliveries", form_id=form_id)["items"]],
    }


def examples(times: int, count: int) -> Callable[[Any], Any]:
    """The same ones at every run, and more of them by the option `--fuzz`."""
    return settings(
        max_examples=count * times,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )


def operations(site: Site, part: str, mode: GenerationMode) -> Sequence[APIOperation[Any, Any, Any, Any]]:
    document = site.public.get("/schema/openapi.json").json()
    schema = schemathesis.openapi.from_dict(document)
    found = [
        schema[path][method]
        for path, item in document["paths"].items()
        for method, described in item.items()
        if path.removeprefix("/api/v1").split("/")[1] == part
        # there is no wrong way to ask for what takes nothing
        if mode is GenerationMode.POSITIVE or {"parameters", "requestBody"} & described.keys()
    ]
    # or the others would find nothing any more
    return sorted(found, key=lambda one: one.method.upper() == "DELETE")


def test_every_part_of_the_api_is_tried(site: Site) -> None:
    paths = site.public.get("/schema/openapi.json").json()["paths"]
    assert {path.removeprefix("/api/v1").split("/")[1] for path in paths} == set(PARTS)


PARTS = [
    *(
        "f",
        "forms",
        "destinations",
        "submissions",
        "deliveries",
        "exports",
        "jobs",
        "queues",
        "schedules",
        "keys",
    ),
    *("workers", "health", "ready"),
]


@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: mode.value)
@pytest.mark.parametrize("part", PARTS)
def test_the_api_answers_as_it_describes_itself(
    site: Site, real_ids: dict[str, list[str]], part: str, mode: GenerationMode, fuzz: int
) -> None:
    for operation in operations(site, part, mode):
        assert statuses(site, real_ids, operation, mode, fuzz) - {401, 404}, operation.label


def statuses(
    site: Site,
    real_ids: dict[str, list[str]],
    operation: APIOperation[Any, Any, Any, Any],
    mode: GenerationMode,
    fuzz: int,
) -> set[int]:
    seen: set[int] = set()

    @examples(fuzz, EXAMPLES)
    @given(case=operation.as_strategy(generation_mode=mode), data=st.data())
    def tried(case: Case[Any], data: st.DataObject) -> None:
        for name in case.path_parameters or {}:
            if data.draw(st.integers(0, 3)):
                case.path_parameters[name] = data.draw(st.sampled_from(real_ids[name]))
        if data.draw(st.integers(0, 9)):
            # in place of the one that is made up, with which nothing is found but that it is no key
            case.headers["Authorization"] = f"Bearer {site.key}"
        answer = case.call(base_url=site.api_url, timeout=HANGS_AFTER_SECONDS, allow_redirects=False)
        seen.add(answer.status_code)
        case.validate_response(answer, checks=CHECKS)

    tried()
    return seen


def broken(posted: tuple[str, bytes], data: st.DataObject) -> tuple[str, bytes]:
    """A body that was cut, or had something put into it, or is said to be another."""
    content_type, body = posted
    start, end = sorted(data.draw(st.tuples(*[st.integers(0, len(body))] * 2)))
    body = body[:start] + data.draw(st.sampled_from(INSERTED)) + body[end:]
    return data.draw(st.sampled_from([content_type, *OTHER_TYPES])), body


INSERTED = [
    *(
        b"",
        b"%",
        b"%FF",
        b"\xff",
        b"\0",
        b"%00",
        b"&",
        b"\r\n",
        b"\\ud800",
        b"null",
        b"[[",
        b"{",
        b'"',
        b"1e999",
    ),
    b"_charset_=utf-16&",
    b'\r\n------a-boundary-that-nobody-types\r\nContent-Disposition: form-data; name="f"; filename="x"\r\n\r\nx',
]
OTHER_TYPES = [
    *(
        "application/x-www-form-urlencoded; charset=shift_jis",
        "multipart/form-data",
        "application/json",
        "text/plain",
    ),
]
WRITERS = st.sampled_from([urlencoded, multipart, json_object])


def test_after_any_bodies_exactly_what_was_confirmed_is_stored(site: Site, fuzz: int) -> None:
    site.make_form("http://127.0.0.1:9/nobody", form_id="fuzzed")
    confirmed: list[str] = []
    seen = Counter[int]()

    @examples(fuzz, BODIES)
    @given(
        pairs=filled_in, write=WRITERS, key=st.sampled_from([None, "one", "two", "not one"]), data=st.data()
    )
    def posted(pairs: Pairs, write: Callable[[Pairs], Posted], key: str | None, data: st.DataObject) -> None:
        content_type, body = write(pairs)
        if data.draw(st.booleans()):
            content_type, body = broken((content_type, body), data)
        headers = {"content-type": content_type} | ({} if key is None else {"idempotency-key": key})
        # a 303 does not say whether it is a repetition
        if key is None and data.draw(st.booleans()):
            headers["accept"] = "text/html"
        answer = site.public.post("/f/fuzzed", content=body, headers=headers)
        seen[answer.status_code] += 1
        assert answer.status_code in {202, 303, 400, 409, 415, 422}
        if answer.status_code == 303 or (answer.status_code == 202 and not answer.json()["duplicate"]):
            confirmed.append(answer.headers.get("location") or answer.json()["submission_id"])

    posted()

    assert seen.keys() >= {202, 303, 400, 409, 415, 422}
    assert site.count("submissions", "form_id = 'fuzzed'") == len(confirmed)
    assert site.count("messages", "form_id = 'fuzzed'") == len(confirmed)
    stored = {one for (one,) in site.query("SELECT id FROM submissions WHERE form_id = 'fuzzed'")}
    assert {one for one in confirmed if one.startswith("sub_")} <= stored
