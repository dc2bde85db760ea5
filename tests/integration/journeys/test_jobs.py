"""Jobs run by worker processes: what survives a crash, a stop, a cancellation and a mistake."""

import signal
from datetime import datetime, timedelta
from typing import Any

import pytest
from pydantic import SecretStr

from hymical.domain.ids import JobId
from hymical.domain.jobs import Json
from hymical.entrypoints.bootstrap.resources import Role, open_container
from hymical.entrypoints.bootstrap.settings import Settings
from tests.site import Site, until


@pytest.fixture(autouse=True)
def _jobs_of_tests(site: Site) -> None:
    # an hour between looks: whatever a worker does it was woken for
    site.configure(job_modules="tests.job_types", job_poll_min_seconds="1h", job_poll_max_seconds="1h")


async def enqueue(site: Site, name: str, payload: Json, *, run_at: datetime | None = None) -> JobId:
    settings = Settings(
        database_url=SecretStr(site.database_url),
        job_modules="tests.job_types",  # type: ignore[arg-type]  # as in the environment
    )
    async with open_container(settings, Role.OPERATOR) as container:
        return (await container.enqueue_job()(name, payload, run_at=run_at)).job_id


def the_job(site: Site, job_id: JobId) -> dict[str, Any]:
    columns = ("state", "result", "error", "failure_reason", "claim_count", "retry_count", "lost_in_a_row")
    (row,) = site.query(f"SELECT {', '.join(columns)} FROM jobs WHERE id = %s", job_id)  # noqa: S608
    return dict(zip(columns, row, strict=True))


async def is_in(site: Site, job_id: JobId, state: str) -> dict[str, Any]:
    """The job, once it is in that state."""
    await until(lambda: the_job(site, job_id)["state"] == state, f"{job_id} is {state}")
    return the_job(site, job_id)


async def has_counted_to(site: Site, job_id: JobId, number: int) -> None:
    await until(lambda: len(counted(site, job_id)) >= number, f"{job_id} has counted to {number}")


def counted(site: Site, job_id: JobId) -> list[int]:
    events = site.query("SELECT message FROM job_events WHERE job_id = %s ORDER BY number", job_id)
    return [message["counted"] for (message,) in events]


async def test_a_worker_is_woken_and_runs_what_is_on_its_queues(site: Site) -> None:
    site.start_worker("counts", "forms")

    counting = await enqueue(site, "count", {"up_to": 3})
    naming = await enqueue(site, "name_form", {"form_id": "nowhere"})

    assert (await is_in(site, counting, "completed"))["result"] == {"began_behind": 0}
    assert (await is_in(site, naming, "completed"))["result"] == {"gone": "the form nowhere"}


async def test_another_worker_goes_on_where_a_killed_one_had_come_to(site: Site) -> None:
    site.configure(job_lease_seconds="1")
    victim = site.start_worker("counts")
    job_id = await enqueue(site, "count", {"up_to": 5, "stands_still_at": 2})
    await has_counted_to(site, job_id, 2)
    victim.dies()

    site.start_worker("counts", job_poll_min_seconds="0.1", job_poll_max_seconds="0.2")

    job = await is_in(site, job_id, "completed")
    assert job["result"] == {"began_behind": 2}
    assert (job["claim_count"], job["retry_count"], job["lost_in_a_row"]) == (2, 0, 0)
    assert counted(site, job_id) == [1, 2, 3, 4, 5]


async def test_a_worker_told_to_stop_hands_back_what_does_not_end_in_time(site: Site) -> None:
    stopping = site.start_worker("counts", job_drain_seconds="0.2")
    job_id = await enqueue(site, "count", {"up_to": 3, "stands_still_at": 2})
    await has_counted_to(site, job_id, 2)

    stopping.send(signal.SIGTERM)

    assert await stopping.ended() == 0
    assert (the_job(site, job_id)["state"], the_job(site, job_id)["retry_count"]) == ("pending", 0)
    site.start_worker("counts")
    assert (await is_in(site, job_id, "completed"))["result"] == {"began_behind": 2}


async def test_an_idle_worker_of_jobs_stops_at_once_however_long_it_polls(site: Site) -> None:
    worker = site.start_worker("counts")
    worker.send(signal.SIGTERM)
    assert await worker.ended(5) == 0
    assert worker.complaints() == []


async def test_cancelling_a_job_reaches_its_run_within_seconds(site: Site) -> None:
    site.start_api()
    worker = site.start_worker("counts")
    job_id = await enqueue(site, "count", {"up_to": 3, "stands_still_at": 2})
    await has_counted_to(site, job_id, 2)

    assert site.management.post(f"/jobs/{job_id}/cancel").status_code == 200

    await until(
        lambda: worker.says(f"{job_id} (count) was taken away; its run is cancelled"), "it is told", 5
    )
    assert the_job(site, job_id)["state"] == "cancelled"
    following = await enqueue(site, "count", {"up_to": 1})
    await is_in(site, following, "completed")


async def test_a_job_fails_with_its_reason(site: Site) -> None:
    site.start_worker("counts")
    late = await enqueue(site, "take_too_long", {})
    broken = await enqueue(site, "break_down", {})
    unfit = await enqueue(site, "count", {"up_to": "s3cret"})

    assert (await is_in(site, late, "failed"))["error"] == "TimeoutError: it took longer than 0:00:00.050000"
    assert (await is_in(site, broken, "failed"))["error"] == "ZeroDivisionError: as told"
    job = await is_in(site, unfit, "failed")
    assert job["failure_reason"] == "invalid_payload"
    assert "s3cret" not in job["error"]


async def test_a_type_that_a_build_does_not_know_fails_with_that_reason(site: Site) -> None:
    job_id = await enqueue(site, "count", {"up_to": 1})
    site.start_worker("counts", job_modules="")

    job = await is_in(site, job_id, "failed")
    assert job["failure_reason"] == "unknown_type"
    assert job["error"] == (
        "the worker that took it has no job type count: start it with one that has, then retry the job"
    )


async def test_a_queue_without_a_worker_waits(site: Site) -> None:
    site.start_worker("forms")
    waiting = await enqueue(site, "count", {"up_to": 1})
    naming = await enqueue(site, "name_form", {"form_id": "nowhere"})

    await is_in(site, naming, "completed")
    assert the_job(site, waiting)["state"] == "pending"

    site.start_worker("counts")
    await is_in(site, waiting, "completed")


async def test_a_job_that_waits_for_its_time_is_run_when_it_comes(site: Site) -> None:
    (now,) = site.query("SELECT now()")[0]
    job_id = await enqueue(site, "count", {"up_to": 1}, run_at=now + timedelta(seconds=2))
    site.start_worker("counts")

    await is_in(site, job_id, "completed")
    ((early,),) = site.query("SELECT started_at < run_at FROM jobs WHERE id = %s", job_id)
    assert early is False


async def test_workers_share_a_queue_and_run_each_job_once(site: Site) -> None:
    workers = [site.start_worker("counts") for _ in range(2)]
    settings = Settings(database_url=SecretStr(site.database_url), job_modules="tests.job_types")  # type: ignore[arg-type]  # as in the environment
    async with open_container(settings, Role.OPERATOR) as container:
        catalog, ids = container.job_catalog(), container.ids()
        jobs = [catalog.job("count", {"up_to": 1}, id=ids.job()) for _ in range(500)]
        await container.job_queue().enqueue(jobs)

    await until(lambda: site.count("jobs", "state = 'completed'") == 500, "all are done")
    assert site.count("jobs", "claim_count - lost_in_a_row > 1 AND event_count > 1") == 0
    assert site.count("job_events") == 500
    assert [worker.complaints() for worker in workers] == [[], []]


async def test_a_worker_says_which_queues_it_drains(site: Site) -> None:
    site.start_api()
    site.start_worker("counts", "forms")
    site.start_worker()

    await until(lambda: len(site.read("/workers")["items"]) == 2, "both are there")
    assert [one["queues"] for one in site.read("/workers")["items"]] == [[], ["counts", "forms"]]


async def test_a_queue_that_no_job_uses_is_warned_of(site: Site) -> None:
    worker = site.start_worker("count")

    await until(
        lambda: worker.says("no type of job of this build uses the queue count; did you mean counts?"),
        "it is",
    )
    worker.send(signal.SIGTERM)
    assert await worker.ended() == 0


@pytest.mark.parametrize("name", ["", "two words", "Counts"])
async def test_a_worker_of_a_queue_that_cannot_be_does_not_wait_there_for_ever(site: Site, name: str) -> None:
    ended = site.run("worker", "--queue", name)

    assert ended.returncode == 2
    assert f"{name!r} cannot be the name of a queue" in ended.stderr


def test_modules_that_cannot_be_imported_are_told_at_start(site: Site) -> None:
    ended = site.run("worker", "--queue", "counts", job_modules="tests.job_types tests.nowhere")

    assert ended.returncode == 2
    assert ended.stderr.startswith("hymical: the jobs in tests.nowhere cannot be imported: No module named")


async def test_jobs_go_on_when_the_database_is_back(site: Site) -> None:
    site.start_worker("counts", job_poll_min_seconds="0.1", job_poll_max_seconds="0.2")
    job_id = await enqueue(site, "count", {"up_to": 200})
    await has_counted_to(site, job_id, 1)

    site.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'hymical job%%'"
    )

    job = await is_in(site, job_id, "completed")
    assert job["retry_count"] == 0
    assert counted(site, job_id) == list(range(1, 201))
