"""The clean-up in PostgreSQL: its command, its job, the plans of its statements, and races with what people do."""

import asyncio
import json
from datetime import timedelta

import pytest
from pydantic import SecretStr

from hymical.domain.deliveries import Delivered
from hymical.domain.errors import NotResendable
from hymical.domain.jobs import Finished
from hymical.domain.retention import Kind
from hymical.entrypoints.bootstrap.resources import Role, open_container
from hymical.entrypoints.bootstrap.settings import Settings
from hymical.entrypoints.jobs.retention import clean_up
from hymical.ports.deliveries import Settled
from hymical.testing import run_job
from tests.builders import LEASE, an_attempt, ids
from tests.integration.test_queue_races import held_open, plan, waits_for_a_lock
from tests.site import Site, until
from tests.worlds import World, postgres_world

DAY = timedelta(days=1)
_DELIVERED = """
INSERT INTO messages (id, type, submission_id, form_id, body)
SELECT 'evt_' || lpad(n::text, 12, '0'), 'destination.test', NULL, 'contact', 'x'
FROM generate_series(%(first)s, %(last)s) AS n;
INSERT INTO deliveries (
    id, message_id, destination_id, state, attempt_count, cycle_attempt_count, lost_in_a_row, ready,
    created_at, completed_at
)
SELECT
    'dlv_' || lpad(n::text, 12, '0'), 'evt_' || lpad(n::text, 12, '0'), (SELECT id FROM destinations LIMIT 1),
    'delivered', 1, 1, 0, FALSE, now() - %(age)s, now() - %(age)s
FROM generate_series(%(first)s, %(last)s) AS n
"""
_JOBS = """
INSERT INTO jobs (
    id, queue, type, version, payload, priority, state, run_at, claim_count, retry_count, max_retries,
    lost_in_a_row, event_count, created_at, finished_at
)
SELECT
    'job_' || lpad(n::text, 12, '0'), 'default', 'x', 1, '{}', 3, 'completed', now() - %(age)s, 1, 0, 0, 0, 0,
    now() - %(age)s, now() - %(age)s
FROM generate_series(%(first)s, %(last)s) AS n
"""
_SUBMISSIONS = """
INSERT INTO submissions (id, form_id, received_at, fields, is_spam, fingerprint)
SELECT 'sub_' || lpad(n::text, 12, '0'), 'contact', now() - %(age)s, '{"a": ["b"]}', FALSE, ''
FROM generate_series(%(first)s, %(last)s) AS n
"""


def fill(site: Site, statement: str, *, first: int, last: int, days: int) -> None:
    for part in statement.split(";"):
        for name, value in (("first", first), ("last", last), ("age", f"interval '{days} days'")):
            part = part.replace(f"%({name})s", str(value))  # noqa: PLW2901
        site.execute(part)


async def with_form(site: Site) -> None:
    async with postgres_world(site.database_url) as world:
        await world.destination()


async def one_delivered(world: World) -> Settled:
    await world.owes(1)
    (claimed,) = (await world.queue.claim(limit=1, lease=LEASE)).deliveries
    done = Settled(claimed=claimed, settlement=Delivered(), attempt=an_attempt(claimed.lease.number))
    await world.queue.settle([done])
    return done


async def test_the_command_says_what_it_removed(site: Site) -> None:
    await with_form(site)
    fill(site, _DELIVERED, first=1, last=1_500, days=91)
    fill(site, _DELIVERED, first=1_501, last=1_510, days=89)
    fill(site, _SUBMISSIONS, first=1, last=20, days=8)
    fill(site, _JOBS, first=1, last=300, days=91)

    kept = site.run("cleanup")
    removed = site.run("cleanup", "--json", submission_retention_days="7")

    assert kept.stdout.splitlines() == [
        "exports: 0 removed",
        "submissions: 0 removed",
        "deliveries: 1500 removed",
        "jobs: 300 removed",
        "rate limits: 0 removed",
    ]
    assert json.loads(removed.stdout) == {
        "exports": 0,
        "submissions": 20,
        "deliveries": 0,
        "jobs": 0,
        "rate_limits": 0,
    }
    assert (site.count("deliveries"), site.count("messages"), site.count("submissions")) == (10, 10, 0)


async def test_the_job_does_the_same_and_says_how_far_it_has_come(site: Site) -> None:
    await with_form(site)
    fill(site, _DELIVERED, first=1, last=500, days=91)
    site.start_api()
    async with open_container(
        Settings(database_url=SecretStr(site.database_url)), Role.OPERATOR
    ) as container:
        job_id = (await container.enqueue_job()("clean_up", {})).job_id
    site.start_worker("maintenance")
    await until(lambda: site.read(f"/jobs/{job_id}")["state"] == "completed", "it is completed")

    job = site.read(f"/jobs/{job_id}")
    assert job["queue"] == "maintenance"
    assert job["result"] == {"exports": 0, "deliveries": 500, "jobs": 0, "rate_limits": 0}
    assert job["progress"]["message"] == job["result"]
    assert site.count("deliveries") == 0


async def test_a_run_that_was_cut_off_goes_on_where_it_stopped(site: Site) -> None:
    await with_form(site)
    fill(site, _DELIVERED, first=1, last=20, days=91)
    saved = {"kind": "deliveries", "behind": "dlv_000000000015", "removed": {"exports": 0, "deliveries": 15}}
    async with open_container(
        Settings(database_url=SecretStr(site.database_url)), Role.OPERATOR
    ) as container:
        ran = await run_job(clean_up, {}, checkpoint=saved, clean_up=container.clean_up())

    assert ran.ending == Finished(result={"exports": 0, "deliveries": 20, "jobs": 0, "rate_limits": 0})
    assert ran.checkpoint == {"kind": None, "behind": "", "removed": ran.ending.result}
    assert site.count("deliveries") == 15


@pytest.mark.parametrize(
    ("name", "filled", "table"),
    [
        ("sweep_deliveries", _DELIVERED, "deliveries"),
        ("sweep_jobs", _JOBS, "jobs"),
        ("look_for_old_submissions", _SUBMISSIONS, "submissions"),
    ],
)
async def test_a_batch_reads_no_more_than_it_looks_at_however_much_is_kept(
    site: Site, name: str, filled: str, table: str
) -> None:
    await with_form(site)
    fill(site, filled, first=1, last=20_000, days=0)
    site.execute(f"ANALYZE {table}")

    found = await plan(site.database_url, name, now=None, age=DAY, behind="", looks=100)

    assert found.of(table) - {"ModifyTable"} <= {"Index Scan", "Index Only Scan"}
    assert found.touched < 150


async def test_expired_files_are_found_by_their_index(site: Site) -> None:
    fill(site, _JOBS, first=1, last=5_000, days=0)
    site.execute(
        "INSERT INTO exports (job_id, form_id, size, chunks, complete, expires_at)"
        " SELECT id, 'contact', 0, 0, TRUE, now() + interval '1 hour' FROM jobs"
    )
    site.execute("ANALYZE exports")
    found = await plan(site.database_url, "sweep_exports", now=None, age=DAY, behind="", looks=100)
    assert found.of("exports") <= {"Index Scan", "ModifyTable"}
    assert found.touched < 50


async def test_a_submission_whose_message_is_being_resent_is_kept(database_url: str) -> None:
    async with postgres_world(database_url) as world:
        done = await one_delivered(world)
        new_id = ids.delivery()
        world.clock.move(2 * DAY)

        def resend() -> object:
            return world.queue.resend(done.claimed.lease.delivery_id, new_id)

        async with held_open(world, resend):
            sweeping = asyncio.create_task(world.sweep.sweep(Kind.SUBMISSIONS, age=DAY, behind="", looks=10))
            await waits_for_a_lock(database_url)
        assert (await sweeping).removed == 0
        (claimed,) = (await world.queue.claim(limit=1, lease=LEASE)).deliveries
        assert claimed.lease.delivery_id == new_id
        assert claimed.message.body


async def test_what_is_being_removed_is_not_resent(database_url: str) -> None:
    async with postgres_world(database_url) as world:
        done = await one_delivered(world)
        world.clock.move(2 * DAY)

        def sweep() -> object:
            return world.sweep.sweep(Kind.SUBMISSIONS, age=DAY, behind="", looks=10)

        async with held_open(world, sweep):
            resending = asyncio.create_task(
                world.queue.resend(done.claimed.lease.delivery_id, ids.delivery())
            )
            await waits_for_a_lock(database_url)
        with pytest.raises(NotResendable):
            await resending


async def test_a_batch_passes_over_what_others_hold(database_url: str) -> None:
    async with postgres_world(database_url) as world:
        await one_delivered(world)
        held = await one_delivered(world)
        world.clock.move(2 * DAY)
        lock = f"SELECT FROM deliveries WHERE id = '{held.claimed.lease.delivery_id}' FOR UPDATE"

        async def hold() -> None:
            async with world.transactions.connection() as connection:  # type: ignore[attr-defined]
                await connection.exec_driver_sql(lock)

        async with held_open(world, hold):
            batch = await world.sweep.sweep(Kind.DELIVERIES, age=DAY, behind="", looks=10)
        assert batch.removed == 1
