"""Races on the queue of jobs in PostgreSQL, with transactions held open, and the plans of its hot statements."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import timedelta

import psycopg
import pytest

from hymical.adapters.postgres.jobs import PostgresJobHistory, PostgresJobQueue
from hymical.domain.errors import JobEnded, JobLost, JobNotWaiting, NotFound
from hymical.domain.ids import JobId
from hymical.domain.jobs import (
    Finished,
    Job,
    JobState,
    NewJob,
    Paused,
    Priority,
    Question,
    settle,
)
from hymical.domain.progress import ProgressEvent, StepStatus
from hymical.ports.jobs import Enqueued, JobVerdict, SettledJob
from tests.builders import LEASE, ids
from tests.clocks import START, StoppedClock
from tests.integration.test_queue_races import Plan, held_open, plan, waits_for_a_lock
from tests.worlds import World, postgres_world


class Jobs:
    """One process's view of the queue."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.clock: StoppedClock = world.clock
        connections = world.transactions
        self.queue = PostgresJobQueue(connections, world.clock)  # type: ignore[arg-type]
        self.history = PostgresJobHistory(connections, world.clock)  # type: ignore[arg-type]

    async def enqueue(self, count: int = 1, *, unique_key: str | None = None) -> Sequence[Enqueued]:
        return await self.queue.enqueue([a_job(unique_key=unique_key) for _ in range(count)])

    async def claim(self, limit: int = 1) -> Sequence[Job]:
        return (await self.queue.claim(["default"], limit=limit, lease=LEASE)).jobs

    async def state(self, job_id: JobId) -> JobState:
        return (await self.history.get(job_id)).state


def a_job(*, unique_key: str | None = None, priority: Priority = Priority.NORMAL) -> NewJob:
    return NewJob(
        id=ids.job(),
        queue="default",
        type="greet",
        version=1,
        payload=json.dumps({"name": "日本 \0 \ud800"}),
        priority=priority,
        max_retries=3,
        unique_key=unique_key,
    )


def finished(job: Job) -> SettledJob:
    return SettledJob(lease=job.lease, settlement=settle(job, Finished(), 0.5))


def asking(job: Job, *choices: str) -> SettledJob:
    return SettledJob(
        lease=job.lease,
        settlement=Paused(question=Question(key="confirm", text="Really?", choices=choices)),
        event=ProgressEvent(job_id=job.id, step="confirm", status=StepStatus.PAUSED),
    )


@pytest.fixture
async def jobs(database_url: str) -> AsyncIterator[Jobs]:
    async with postgres_world(database_url) as world:
        yield Jobs(world)


async def test_a_thousand_jobs_claimed_by_eight_at_once_are_each_claimed_once(jobs: Jobs) -> None:
    stored = await jobs.enqueue(1_000)
    processes = [Jobs(jobs.world) for _ in range(8)]

    async def drain(process: Jobs) -> list[Job]:
        taken: list[Job] = []
        while claimed := await process.claim(20):
            taken += claimed
            assert set(await process.queue.settle([finished(job) for job in claimed])) == {JobVerdict.SETTLED}
        return taken

    taken = [job.id for of_one in await asyncio.gather(*map(drain, processes)) for job in of_one]

    assert Counter(taken) == Counter(one.job_id for one in stored)


async def test_what_a_claim_that_is_being_committed_holds_is_passed_over(jobs: Jobs) -> None:
    await jobs.enqueue(3)
    other = Jobs(jobs.world)

    async with held_open(jobs.world, lambda: jobs.claim(2)) as results:
        (held,) = results
        taken = await other.claim(3)

    assert len(taken) == 1
    assert not {job.id for job in taken} & {job.id for job in held}


async def test_a_settlement_that_waits_for_a_reclaim_changes_nothing(jobs: Jobs, database_url: str) -> None:
    await jobs.enqueue()
    (old,) = await jobs.claim()
    jobs.clock.move(LEASE)
    other = Jobs(jobs.world)

    async with held_open(jobs.world, other.claim) as results:
        ((new,),) = results
        late = asyncio.create_task(jobs.queue.settle([finished(old)]))
        await waits_for_a_lock(database_url)
    assert await late == [JobVerdict.LOST]

    assert await jobs.state(old.id) is JobState.PROCESSING
    assert await other.queue.settle([finished(new)]) == [JobVerdict.SETTLED]


async def test_an_answer_that_arrives_while_the_pause_is_being_committed_is_not_lost(
    jobs: Jobs, database_url: str
) -> None:
    await jobs.enqueue()
    (job,) = await jobs.claim()

    async with held_open(jobs.world, lambda: jobs.queue.settle([asking(job, "yes", "no")])):
        answering = asyncio.create_task(jobs.queue.answer(job.id, "yes", by="key_1"))
        await waits_for_a_lock(database_url)
    await answering

    assert await jobs.state(job.id) is JobState.PENDING
    (again,) = await jobs.claim()
    assert again.answers["confirm"].text == "yes"


async def test_of_two_answers_at_once_one_is_refused(jobs: Jobs) -> None:
    await jobs.enqueue()
    (job,) = await jobs.claim()
    await jobs.queue.settle([asking(job)])

    answers = await asyncio.gather(
        *(jobs.queue.answer(job.id, text, by="key_1") for text in ("one", "two")), return_exceptions=True
    )

    assert [type(answer) for answer in answers if answer is not None] == [JobNotWaiting]


async def test_a_job_is_cancelled_or_completed_but_never_both(jobs: Jobs, database_url: str) -> None:
    await jobs.enqueue()
    (job,) = await jobs.claim()

    async with held_open(jobs.world, lambda: jobs.queue.settle([finished(job)])):
        cancelling = asyncio.create_task(jobs.queue.cancel(job.id))
        await waits_for_a_lock(database_url)
    with pytest.raises(JobEnded):
        await cancelling

    assert await jobs.state(job.id) is JobState.COMPLETED


async def test_a_checkpoint_that_waits_for_a_cancellation_is_not_saved(jobs: Jobs, database_url: str) -> None:
    await jobs.enqueue()
    (job,) = await jobs.claim()

    async with held_open(jobs.world, lambda: jobs.queue.cancel(job.id)):
        saving = asyncio.create_task(jobs.queue.save(job.lease, {"row": 1}))
        await waits_for_a_lock(database_url)
    with pytest.raises(JobLost):
        await saving


async def test_of_two_that_enqueue_under_one_key_at_once_both_get_the_same_job(
    jobs: Jobs, database_url: str
) -> None:
    async with held_open(jobs.world, lambda: jobs.enqueue(unique_key="one")) as results:
        ((first,),) = results
        second = asyncio.create_task(jobs.enqueue(unique_key="one"))
        await waits_for_a_lock(database_url)

    assert await second == [Enqueued(job_id=first.job_id, duplicate=True)]


async def test_two_that_enqueue_the_same_keys_in_another_order_do_not_wait_in_a_circle(
    jobs: Jobs, database_url: str
) -> None:
    async with held_open(jobs.world, lambda: jobs.enqueue(unique_key="b")):
        forth = asyncio.create_task(jobs.queue.enqueue([a_job(unique_key=key) for key in "abc"]))
        await waits_for_a_lock(database_url)
        # the first has its "a" and waits for "b"
        back = asyncio.create_task(jobs.queue.enqueue([a_job(unique_key=key) for key in "ca"]))
        await waits_for_a_lock(database_url, 2)

    first, second = await forth, await back
    assert [one.duplicate for one in (*first, *second)] == [False, True, False, True, True]
    assert {one.job_id for one in second} == {first[0].job_id, first[2].job_id}


class UnpinnedClock(StoppedClock):
    """By it the database takes its own time."""

    def pinned(self) -> None:
        return None


async def test_a_batch_of_several_types_has_one_time_and_its_first_is_claimed_first(jobs: Jobs) -> None:
    queue = PostgresJobQueue(jobs.world.transactions, UnpinnedClock())  # type: ignore[arg-type]
    first, second = replace(a_job(), type="welcome"), a_job()

    await queue.enqueue([first, second])

    views = [await jobs.history.get(job.id) for job in (first, second)]
    assert views[0].run_at == views[1].run_at == views[0].created_at == views[1].created_at
    claimed = await queue.claim(["default"], limit=1, lease=LEASE)
    assert [job.id for job in claimed.jobs] == [first.id]


async def test_a_batch_of_several_types_is_stored_as_a_whole_or_not_at_all(jobs: Jobs) -> None:
    good, refused = a_job(), replace(a_job(), type="welcome", payload="{")

    with pytest.raises(psycopg.errors.InvalidTextRepresentation):
        await jobs.queue.enqueue([good, refused])

    with pytest.raises(NotFound):
        await jobs.history.get(good.id)


async def test_a_key_whose_enqueuing_is_rolled_back_goes_to_the_one_that_waited(
    jobs: Jobs, database_url: str
) -> None:
    async def first() -> None:
        async with jobs.world.transactions.begin():
            await jobs.enqueue(unique_key="one")
            reached.set()
            await over.wait()
            raise RuntimeError

    reached, over = asyncio.Event(), asyncio.Event()
    failing = asyncio.create_task(first())
    await reached.wait()
    waiting = asyncio.create_task(jobs.enqueue(unique_key="one"))
    await waits_for_a_lock(database_url)
    over.set()
    with pytest.raises(RuntimeError):
        await failing

    (stored,) = await waiting
    assert not stored.duplicate


async def test_what_another_process_hands_back_behind_the_floors_is_found_by_the_next_full_look(
    jobs: Jobs,
) -> None:
    other = Jobs(jobs.world)
    await jobs.enqueue()
    (job,) = await other.claim()
    jobs.clock.move(timedelta(seconds=10))
    await jobs.enqueue()
    jobs.clock.move(timedelta(seconds=10))
    await jobs.claim()
    await other.queue.release([job.lease])

    assert not await jobs.claim()
    jobs.clock.move(timedelta(seconds=2))
    assert [one.id for one in await jobs.claim()] == [job.id]


async def filled(database_url: str, count: int, state: str, run_at: timedelta) -> None:
    """Stores jobs of the queue `default` as fast as the database can."""
    ended = state == "completed"
    insert = (
        "INSERT INTO jobs (id, queue, type, version, payload, priority, state, run_at, claim_count, retry_count,"
        " max_retries, lost_in_a_row, event_count, created_at, finished_at)"
        " SELECT 'job_' || gen_random_uuid(), 'default', 'greet', 1, '{}', 1 + mod(number, 4),"
        " %s, %s, 0, 0, 3, 0, 0, %s, %s"
        " FROM generate_series(1, %s) AS number"
    )
    at = START + run_at
    async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as connection:
        await connection.execute(insert, (state, at, START, START if ended else None, count))
        await connection.execute("VACUUM ANALYZE jobs")


async def claim_plan(database_url: str) -> Plan:
    return await plan(
        database_url,
        "claim_jobs",
        now=START,
        queue="default",
        limit=10,
        lease=LEASE,
        priorities=[1, 2, 3, 4],
        floor_run_ats=[START - timedelta(days=1)] * 4,
        floor_ids=[""] * 4,
    )


@pytest.mark.parametrize(
    ("state", "run_at"),
    [
        ("completed", timedelta(0)),
        ("pending", timedelta(days=1)),
        ("pending", timedelta(0)),
    ],
    ids=["a long history", "many that wait for their time", "a long backlog"],
)
async def test_a_claim_reads_no_more_beside(database_url: str, state: str, run_at: timedelta) -> None:
    await filled(database_url, 100, "pending", timedelta(0))
    await filled(database_url, 1_000, state, run_at)
    before = await claim_plan(database_url)
    await filled(database_url, 50_000, state, run_at)
    after = await claim_plan(database_url)

    assert "Seq Scan" not in after.of("jobs")
    assert not [node for node in after.nodes if node["Node Type"] == "Sort" and node["Actual Rows"] > 10]
    # what is changed is found through trees, which are a level higher by now
    assert after.touched <= before.touched + 60


async def test_floors_spare_a_claim_what_an_old_transaction_keeps_from_being_removed(
    jobs: Jobs, database_url: str
) -> None:
    await filled(database_url, 20_000, "pending", timedelta(0))
    async with await psycopg.AsyncConnection.connect(database_url) as old:
        await old.set_isolation_level(psycopg.IsolationLevel.REPEATABLE_READ)
        await old.execute("SELECT FROM jobs LIMIT 1")
        jobs.clock.move(timedelta(seconds=5))
        for _ in range(19):
            claimed = await jobs.claim(1_000)
            await jobs.queue.settle([finished(job) for job in claimed])

        async def touched(floor: str) -> int:
            highest = await highest_claimed(database_url)
            found = await plan(
                database_url,
                "claim_jobs",
                now=jobs.clock.now(),
                queue="default",
                limit=10,
                lease=LEASE,
                priorities=[4],
                floor_run_ats=[START],
                floor_ids=[highest if floor == "floor" else ""],
            )
            return found.touched

        with_floor, without = await touched("floor"), await touched("none")

    assert with_floor * 5 < without


async def highest_claimed(database_url: str) -> str:
    query = "SELECT max(id) FROM jobs WHERE priority = 4 AND state = 'completed'"
    async with await psycopg.AsyncConnection.connect(database_url) as connection:
        row = await (await connection.execute(query)).fetchone()
    assert row is not None
    return str(row[0])
