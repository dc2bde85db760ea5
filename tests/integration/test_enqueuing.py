"""Jobs queued by people, over HTTP and on the command line."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.database import Databases
from tests.site import Site


@pytest.fixture(scope="module")
def site(databases: Databases) -> Iterator[Site]:
    with databases.migrated() as url, Site(url, job_modules="tests.job_types") as site:
        site.start_api()
        yield site


def queued(site: Site, status: int, **given: Any) -> dict[str, Any]:
    answer = site.management.post("/jobs", json=given)
    assert answer.status_code == status, answer.text
    content: dict[str, Any] = answer.json()
    return content


def test_a_job_is_queued_over_http_on_the_queue_of_its_type(site: Site) -> None:
    job = queued(site, 202, type="count", payload={"up_to": 3}, priority=1, run_at="2100-01-01T00:00:00Z")

    assert (job["queue"], job["state"], job["duplicate"]) == ("counts", "pending", False)
    assert (job["priority"], job["run_at"]) == (1, "2100-01-01T00:00:00.000000Z")
    assert site.read(f"/jobs/{job['id']}")["payload"] == {"up_to": 3}


def test_a_second_one_under_the_same_key_is_the_first(site: Site) -> None:
    first = queued(site, 202, type="count", payload={"up_to": 3}, unique_key="one")
    second = queued(site, 202, type="count", payload={"up_to": 4}, unique_key="one")

    assert (second["id"], second["duplicate"], second["payload"]) == (first["id"], True, {"up_to": 3})


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"type": "nothing_of_that_name"}, "no job type 'nothing_of_that_name'"),
        ({"type": "count"}, "up_to: field required"),
        (
            {"type": "count", "payload": {"up_to": "secret-of-a-person"}},
            "up_to: input should be a valid integer",
        ),
        ({"type": "count", "payload": [1]}, "payload"),
        ({"type": "count", "payload": {"up_to": 1}, "priority": 5}, "priority"),
        ({"type": "count", "payload": {"up_to": 1}, "unique_key": "a b"}, "unique_key"),
        ({"type": "count", "payload": {"up_to": 1}, "run_at": "tomorrow"}, "run_at"),
        ({"type": "count", "payload": {"up_to": 1}, "queue": "other"}, "queue"),
    ],
)
def test_what_could_not_be_run_is_refused_and_nothing_is_queued(
    site: Site, given: dict[str, Any], told: str
) -> None:
    before = site.count("jobs")
    refused = queued(site, 422, **given)

    assert refused["code"] == "invalid_request"
    assert told in json.dumps(refused)
    assert "secret-of-a-person" not in json.dumps(refused)
    assert site.count("jobs") == before


def test_a_job_is_queued_on_the_command_line(site: Site) -> None:
    made = site.run("jobs", "enqueue", "count", '{"up_to": 2}', "--json")
    assert made.returncode == 0, made.stderr
    job = json.loads(made.stdout)
    assert site.read(f"/jobs/{job['id']}")["queue"] == "counts"

    assert "object of JSON" in site.run("jobs", "enqueue", "count", "[1]").stderr
    assert "up_to" in site.run("jobs", "enqueue", "count").stderr
    assert "no job type" in site.run("jobs", "enqueue", "cuont").stderr
