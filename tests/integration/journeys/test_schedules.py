"""Schedules from their rule to the end of their job, over all processes, and when one of these dies."""

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import pytest
from pydantic import SecretStr

from hymical.adapters.embedded.server import embedded_server, temporary_data_folder
from hymical.adapters.postgres.schema import migrate
from hymical.application.schedules import Pass
from hymical.entrypoints.bootstrap.resources import Role, open_container
from hymical.entrypoints.bootstrap.settings import Settings
from tests.clocks import StoppedClock
from tests.site import Site, until

MODULE = "tests.scheduled_jobs"
BEFORE = datetime(2026, 11, 29, 1, 30, tzinfo=UTC)
DUE = datetime(2026, 11, 29, 2, tzinfo=UTC)


@pytest.fixture(autouse=True)
def _with_schedules(site: Site) -> None:
    site.configure(job_modules=MODULE)


def has_missed(site: Site, name: str) -> None:
    """Lets the schedule's last tick be one that nobody ran."""
    site.execute("INSERT INTO schedules (name, since) VALUES (%s, now() - interval '25 hours')", name)


async def evaluated(database_url: str, at: datetime) -> Pass:
    settings = Settings(database_url=SecretStr(database_url), job_modules=(MODULE,))
    async with open_container(settings, Role.SCHEDULER, clock=StoppedClock(at)) as container:
        return await container.evaluate_schedules()()


@contextmanager
def held(database_url: str, at: datetime, where: str) -> Iterator[subprocess.Popen[str]]:
    """A scheduler that stands still in the transaction of a tick, before or after it stores the job."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.held_scheduler", database_url, at.isoformat(), where],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "held\n"
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


async def test_a_tick_that_is_due_becomes_a_job_that_a_worker_runs_and_the_api_tells_of_it(
    site: Site,
) -> None:
    has_missed(site, "nightly")
    site.start_api()
    site.start_worker("default")
    scheduler = site.start_scheduler()

    def nightly() -> dict[str, object]:
        found = {one["name"]: one for one in site.read("/schedules")["items"]}
        return dict(found["nightly"])

    await until(lambda: nightly()["last_state"] == "completed", "the job of the tick is completed")

    shown = nightly()
    assert (shown["rule"], shown["zone"], shown["catch_up"]) == ("0 3 * * *", "Europe/Berlin", "once")
    assert (shown["paused"], shown["error"], shown["overdue_since"]) == (False, None, None)
    assert str(shown["next"]) > str(shown["last"])
    assert isinstance(shown["duration_ms"], int)
    assert isinstance(shown["lag_ms"], int)
    job = site.read(f"/jobs/{shown['last_job_id']}")
    assert (job["type"], job["result"]) == ("report", {"subject": "the night"})
    assert site.read("/schedules")["schedulers"] == 1
    assert [one["kind"] for one in site.read("/workers")["items"]] == ["scheduler", "worker"]
    assert scheduler.complaints() == []

    scheduler.send(signal.SIGTERM)
    assert await scheduler.ended(5) == 0
    assert site.read("/schedules")["schedulers"] == 0
    assert site.count("jobs") == 1


@pytest.mark.parametrize("where", ["before", "after"])
async def test_a_scheduler_killed_between_a_tick_and_its_job_leaves_exactly_one_to_another(
    site: Site, where: str
) -> None:
    await evaluated(site.database_url, BEFORE)
    with held(site.database_url, DUE, where) as victim:
        assert site.count("jobs") == 0
        victim.send_signal(signal.SIGKILL)
        victim.wait()

    passes = [await evaluated(site.database_url, DUE) for _ in range(3)]

    assert [len(one.enqueued) for one in passes] == [1, 0, 0]
    assert site.count("jobs") == site.count("ticks") == 1


async def test_three_processes_worth_of_schedulers_over_days_run_each_tick_once(site: Site) -> None:
    settings = Settings(database_url=SecretStr(site.database_url), job_modules=(MODULE,))
    clock = StoppedClock(BEFORE)
    async with (
        open_container(settings, Role.SCHEDULER, clock=clock) as one,
        open_container(settings, Role.SCHEDULER, clock=clock) as two,
        open_container(settings, Role.SCHEDULER, clock=clock) as three,
    ):
        evaluations = [container.evaluate_schedules() for container in (one, two, three)]
        for _ in range(3 * 24):
            await asyncio.gather(*(evaluate() for evaluate in evaluations))
            clock.move(timedelta(hours=1))

    ours = (
        "SELECT schedule, due_at FROM ticks WHERE schedule IN ('doomed', 'nightly') ORDER BY schedule, due_at"
    )
    assert site.query(ours) == [
        *(("doomed", datetime(2026, 11, day, 4, tzinfo=UTC)) for day in (29, 30)),
        ("doomed", datetime(2026, 12, 1, 4, tzinfo=UTC)),
        *(("nightly", datetime(2026, 11, day, 2, tzinfo=UTC)) for day in (29, 30)),
        ("nightly", datetime(2026, 12, 1, 2, tzinfo=UTC)),
    ]
    assert site.count("jobs") == site.count("ticks")
    assert site.count("jobs", "type IN ('hopeless', 'report')") == 6


def test_a_schedule_is_run_by_hand_and_waited_for(site: Site) -> None:
    site.start_worker("default")

    done = site.run("run", "nightly", "--wait")
    failed = site.run("run", "doomed", "--wait")

    assert done.returncode == 0, done.stderr
    assert '{"subject": "the night"}' in done.stdout
    assert "completed" in done.stdout.splitlines()[-1]
    assert failed.returncode == 1
    assert "nothing can be said of doom" in failed.stdout


def test_a_schedule_that_is_run_by_hand_without_waiting_is_queued(site: Site) -> None:
    queued = site.run("run", "nightly", "--json")

    assert queued.returncode == 0
    assert site.query("SELECT id, state FROM jobs") == [(json.loads(queued.stdout)["job_id"], "pending")]


def test_schedules_are_listed_paused_and_resumed_on_the_command_line(site: Site) -> None:
    assert "paused" in site.run("schedules", "pause", "nightly").stdout
    listed = site.run("schedules", "list")
    shown = json.loads(site.run("schedules", "list", "--json").stdout)
    resumed = json.loads(site.run("schedules", "resume", "nightly", "--json").stdout)
    unknown = site.run("run", "weekly")

    *lines, last = listed.stdout.splitlines()
    (doomed,) = (line for line in lines if line.startswith("doomed  "))
    assert doomed.startswith("doomed  daily at 04:00  UTC  next ")
    assert "nightly  0 3 * * *  Europe/Berlin  paused" in lines
    assert "no scheduler is alive" in last
    assert [one["name"] for one in shown["items"] if one["paused"]] == ["nightly"]
    assert (resumed["name"], resumed["paused"]) == ("nightly", False)
    assert (unknown.returncode, unknown.stderr) == (1, "hymical: there is no schedule weekly\n")


def test_schedules_are_run_paused_and_resumed_over_http(site: Site) -> None:
    site.start_api()

    ran = site.management.post("/schedules/nightly/run")
    paused = site.management.post("/schedules/nightly/pause")
    resumed = site.management.post("/schedules/nightly/resume")
    missing = [site.management.post(f"/schedules/weekly/{verb}") for verb in ("run", "pause", "resume")]

    assert (ran.status_code, ran.json()["state"], ran.json()["type"]) == (202, "pending", "report")
    assert (paused.status_code, paused.json()["paused"], paused.json()["next"]) == (200, True, None)
    assert paused.json()["last_job_id"] == ran.json()["id"]
    assert (resumed.status_code, resumed.json()["paused"]) == (200, False)
    assert [(one.status_code, one.json()["code"]) for one in missing] == [(404, "not_found")] * 3


def test_the_api_is_ready_without_a_scheduler_and_says_what_is_overdue(site: Site) -> None:
    has_missed(site, "nightly")
    site.start_api()

    assert site.public.get("/ready").status_code == 200
    shown = site.read("/schedules")
    overdue = {one["name"]: one["overdue_since"] for one in shown["items"]}
    assert shown["schedulers"] == 0
    assert overdue["nightly"] is not None
    assert overdue["doomed"] is None


@pytest.mark.parametrize("command", [("scheduler",), ("serve", "--port", "0"), ("worker",)])
def test_a_schedule_that_can_never_be_run_keeps_processes_from_starting(
    site: Site, command: tuple[str, ...]
) -> None:
    ended = site.run(*command, job_modules="tests.unreadable_schedule")

    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr == "hymical: schedule 'broken': cron '0 25 * * *' cannot be read: bad hour\n"


def test_a_module_that_is_not_there_keeps_a_scheduler_from_starting(site: Site) -> None:
    ended = site.run("scheduler", job_modules="tests.no_such_module")

    assert ended.returncode == 2
    assert "hymical: the jobs in tests.no_such_module cannot be imported" in ended.stderr
    assert "Traceback" not in ended.stderr


async def test_a_scheduler_outlives_a_restart_of_postgresql() -> None:
    with temporary_data_folder("hymical-outage-") as data, embedded_server(data, durable=False) as server:
        migrate(server.url())
        with Site(server.url(), job_modules=MODULE) as site:
            scheduler = site.start_scheduler()
            await until(lambda: site.count("schedules", "name = 'nightly'") == 1, "schedules are registered")
            server.restart()
            assert scheduler.lives
            scheduler.send(signal.SIGTERM)
            assert await scheduler.ended(5) == 0
