"""Much is replayed, or sent late: over HTTP, by worker processes that may be killed, with a person in between."""

from collections import Counter
from datetime import datetime
from typing import Any

import httpx
import psycopg
import pytest

from tests.receivers import Receiver
from tests.site import Site, until


def asked(site: Site, path: str, content: dict[str, Any]) -> dict[str, Any]:
    answer = site.management.post(path, json=content)
    assert answer.status_code == 202, answer.text
    job: dict[str, Any] = answer.json()
    return job


async def is_in(site: Site, job_id: str, state: str) -> dict[str, Any]:
    """The job, once it is in that state."""
    await until(lambda: site.read(f"/jobs/{job_id}")["state"] == state, f"{job_id} is {state}")
    return site.read(f"/jobs/{job_id}")


def errors_of(answer: httpx.Response) -> list[str]:
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_request"), answer.text
    return [error["field"] for error in answer.json()["errors"]]


async def failed(site: Site, count: int) -> None:
    """So many deliveries that have failed in their third attempt, an hour ago."""
    await site.accept(count)
    site.execute(
        "UPDATE deliveries SET state = 'failed', failure_reason = 'exhausted', attempt_count = 3, due_at = NULL,"
        " ready = FALSE, cycle_attempt_count = 3, completed_at = now() - interval '1 hour'"
    )


async def test_each_delivery_is_replayed_exactly_once_although_the_worker_is_killed_in_the_midst(
    site: Site,
) -> None:
    site.configure(job_lease_seconds="3", job_poll_max_seconds="0.5", worker_batch_size="100")
    site.start_api()
    async with Receiver() as receiver:
        site.make_form(receiver.url(), max_in_flight=100)
        await failed(site, 1_800)
        await site.start_workers(1)
        victim = site.start_worker("maintenance")

        job = asked(site, "/deliveries/replay", {"form_id": "contact"})
        question = (await is_in(site, job["id"], "paused"))["question"]
        assert question["text"] == "Replay 1,800 deliveries to 1 destination?"
        assert site.states() == {"failed": 1_800}

        with psycopg.connect(site.database_url) as hand:
            # one of the second batch is held, and with it the batch
            ((held,),) = site.query("SELECT id FROM deliveries ORDER BY id OFFSET 700 LIMIT 1")
            hand.execute("SELECT FROM deliveries WHERE id = %s FOR UPDATE", [held])
            site.management.post(f"/jobs/{job['id']}/answer", json={"answer": "yes"})
            blocked = "SELECT FROM pg_stat_activity WHERE cardinality(pg_blocking_pids(pid)) > 0"
            await until(lambda: len(site.query(blocked)) > 0, "the worker is in its second batch")
            assert site.count("deliveries", "state <> 'failed'") == 500
            victim.dies()
            hand.rollback()

        site.start_worker("maintenance")
        ended = await is_in(site, job["id"], "completed")
        assert ended["result"] == {"outcome": "done", "sent": 1_800, "skipped": {}}
        await until(lambda: site.states() == {"delivered": 1_800}, "all are delivered")

    sent = Counter(request.header("hymical-delivery")[0] for request in receiver.requests)
    assert len(sent) == 1_800
    assert set(sent.values()) == {1}
    assert site.query("SELECT DISTINCT attempt_count, cycle_attempt_count FROM deliveries") == [(4, 1)]
    counts = [event["message"]["sent"] for event in events(site, job["id"]) if event["step"] == "replay"]
    assert counts == [500, 1_000, 1_500, 1_800]


def events(site: Site, job_id: str) -> list[dict[str, Any]]:
    answer = site.management.get(f"/jobs/{job_id}/events", headers={"accept": "application/json"})
    items: list[dict[str, Any]] = answer.json()["items"]
    return items


async def test_past_submissions_reach_a_new_destination_with_the_bytes_that_the_first_one_got(
    site: Site,
) -> None:
    site.start_api()
    async with Receiver() as first, Receiver() as late:
        site.make_form(first.url())
        posted = {site.post({"number": str(number)}) for number in range(5)}
        await site.start_workers(1)
        await first.arrival(5)
        new = site.create("/forms/contact/destinations", {"url": late.url()})
        # as old as the past is complete after
        site.execute("UPDATE destinations SET created_at = now() - interval '1 minute'")
        site.start_worker("maintenance")

        job = asked(site, f"/destinations/{new['id']}/backfill", {})
        ended = await is_in(site, job["id"], "completed")
        await late.arrival(5)

    assert ended["result"] == {"outcome": "done", "sent": 5, "skipped": {}}
    was = {request.header("webhook-id")[0]: request.body for request in first.requests}
    assert {request.header("webhook-id")[0]: request.body for request in late.requests} == was
    assert len(was) == len(posted)


def test_asking_twice_is_asking_once(site: Site) -> None:
    site.start_api()
    site.make_form("http://127.0.0.1:9/")
    since = datetime.fromisoformat("2026-11-29T12:00:00+00:00")
    one = asked(site, "/deliveries/replay", {"form_id": "contact", "failed_after": since.isoformat()})
    same = asked(
        site,
        "/deliveries/replay",
        {"failed_after": "2026-11-29T13:00:00+01:00", "state": "failed", "form_id": "contact"},
    )
    other = asked(site, "/deliveries/replay", {"form_id": "contact"})

    assert (one["queue"], one["type"], one["state"]) == ("maintenance", "replay_deliveries", "pending")
    assert (one["duplicate"], same["duplicate"], other["duplicate"]) == (False, True, False)
    assert one["id"] == same["id"] != other["id"]

    (destination,) = site.read("/forms/contact/destinations")["items"]
    backfill = f"/destinations/{destination['id']}/backfill"
    first = asked(site, backfill, {"received_after": since.isoformat()})
    again = site.management.post(backfill)
    assert again.status_code == 202
    assert (again.json()["id"], again.json()["duplicate"]) == (first["id"], True)


@pytest.mark.parametrize(
    ("field", "content"),
    [
        ("form_id", {"form_id": "No Form"}),
        ("state", {"state": "delivered"}),
        ("reason", {"reason": "bored"}),
        ("failed_after", {"failed_after": "2026-11-29T12:00:00"}),
        ("failed_before", {"failed_before": 5}),
        ("foam_id", {"foam_id": "contact"}),
    ],
)
def test_a_filter_that_cannot_be_is_refused_by_its_field(
    shared_site: Site, field: str, content: dict[str, Any]
) -> None:
    assert errors_of(shared_site.management.post("/deliveries/replay", json=content)) == [field]


@pytest.mark.parametrize("destination_id", ["dst_unknown", "dst_operator"])
def test_a_destination_that_is_not_there_is_not_filled(shared_site: Site, destination_id: str) -> None:
    answer = shared_site.management.post(f"/destinations/{destination_id}/backfill", json={})
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
