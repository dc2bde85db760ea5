"""Whoever lost a job changes nothing with it: every write that comes late, after everything that takes a job away."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta

import pytest

from hymical.domain.errors import JobLost, NotFound
from hymical.domain.jobs import (
    Completed,
    Failed,
    Job,
    JobFailure,
    Later,
    Paused,
    Settlement,
)
from hymical.domain.progress import ProgressEvent, RecordedEvent, StepStatus
from hymical.ports.jobs import JobVerdict, JobView, SettledJob
from tests.builders import LEASE, a_new_job, a_question
from tests.worlds import World

MINUTE = timedelta(minutes=1)
LOST = {"lost"}
LOST_OR_REPEATED = {"lost", "repeated"}


async def claimed(world: World) -> Job:
    (job,) = (await world.jobs.claim(["default"], limit=1, lease=LEASE)).jobs
    return job


async def ended(world: World, job: Job, settlement: Settlement) -> None:
    event = ProgressEvent(job_id=job.id, step="end", status=StepStatus.COMPLETED)
    await world.progress.publish(job.lease, [event])
    assert list(await world.jobs.settle([SettledJob(lease=job.lease, settlement=settlement)])) == [
        JobVerdict.SETTLED
    ]


# What takes a job away from its holder


async def is_reclaimed(world: World, job: Job) -> None:
    world.clock.move(LEASE)
    assert (await claimed(world)).id == job.id


async def is_cancelled(world: World, job: Job) -> None:
    await world.jobs.cancel(job.id)


async def is_deleted(world: World, job: Job) -> None:
    await world.delete_job(job.id)


async def is_released(world: World, job: Job) -> None:
    await world.jobs.release([job.lease])


async def is_paused(world: World, job: Job) -> None:
    await ended(world, job, Paused(question=a_question(deadline=MINUTE)))


async def is_answered(world: World, job: Job) -> None:
    await is_paused(world, job)
    await world.jobs.answer(job.id, "yes", by="key_1")


async def is_answered_and_reclaimed(world: World, job: Job) -> None:
    await is_answered(world, job)
    assert (await claimed(world)).id == job.id


async def is_completed(world: World, job: Job) -> None:
    await ended(world, job, Completed(result={"rows": 1}))


async def is_failed(world: World, job: Job) -> None:
    await ended(world, job, Failed(reason=JobFailure.GAVE_UP, error="no use"))


async def is_retried_by_hand(world: World, job: Job) -> None:
    await is_failed(world, job)
    await world.jobs.retry(job.id)


async def is_reclaimed_and_ended(world: World, job: Job) -> None:
    await is_reclaimed(world, job)
    await world.jobs.cancel(job.id)


async def waits_for_a_retry(world: World, job: Job) -> None:
    await ended(world, job, Later(delay=MINUTE, spends=True, error="boom"))


Event = Callable[[World, Job], Awaitable[None]]

# claims, and losses in a row, of a job that is claimed a while after; None where it is not claimed again
EVENTS: Mapping[Event, tuple[int, int] | None] = {
    is_reclaimed: (3, 2),
    is_cancelled: None,
    is_deleted: None,
    is_released: (2, 0),
    is_paused: (2, 0),
    is_answered: (2, 0),
    is_answered_and_reclaimed: (3, 1),
    is_completed: None,
    is_failed: None,
    is_retried_by_hand: (2, 0),
    is_reclaimed_and_ended: None,
    waits_for_a_retry: (2, 0),
}
# the holder itself has settled, and another settlement of it may be taken for the same one
BY_ITSELF = {is_paused, is_answered, is_completed, is_failed, is_retried_by_hand, waits_for_a_retry}


# What its holder then does


async def settles(world: World, job: Job, settlement: Settlement) -> str:
    event = ProgressEvent(job_id=job.id, step="late", status=StepStatus.PAUSED)
    paused = isinstance(settlement, Paused)
    (verdict,) = await world.jobs.settle(
        [SettledJob(lease=job.lease, settlement=settlement, event=event if paused else None)]
    )
    return verdict


async def completes(world: World, job: Job) -> str:
    return await settles(world, job, Completed(result={"rows": 2}))


async def fails(world: World, job: Job) -> str:
    return await settles(world, job, Failed(reason=JobFailure.EXHAUSTED, error="late"))


async def retries_later(world: World, job: Job) -> str:
    return await settles(world, job, Later(delay=timedelta(hours=1), spends=True, error="late"))


async def pauses(world: World, job: Job) -> str:
    return await settles(world, job, Paused(question=a_question("late", deadline=timedelta(hours=1))))


async def renews(world: World, job: Job) -> str:
    held = await world.jobs.renew([job.lease], lease=timedelta(days=1))
    return "held" if held else "lost"


async def asks_whether_it_holds_it(world: World, job: Job) -> str:
    return "held" if await world.jobs.still_held([job.lease]) else "lost"


async def saves(world: World, job: Job) -> str:
    try:
        await world.jobs.save(job.lease, {"late": True})
    except JobLost:
        return "lost"
    return "saved"


async def publishes(world: World, job: Job) -> str:
    event = ProgressEvent(job_id=job.id, step="late", status=StepStatus.PROGRESS)
    try:
        await world.progress.publish(job.lease, [event])
    except JobLost:
        return "lost"
    return "published"


async def releases(world: World, job: Job) -> str:
    await world.jobs.release([job.lease])
    return "lost"


Write = Callable[[World, Job], Awaitable[str]]

SETTLEMENTS: tuple[Write, ...] = (completes, fails, retries_later, pauses)
OTHER_WRITES: tuple[Write, ...] = (renews, asks_whether_it_holds_it, saves, publishes, releases)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """All that can be seen of a job."""

    view: JobView | None
    events: tuple[RecordedEvent, ...]


async def trace(world: World, job: Job) -> Trace:
    try:
        view = await world.job_history.get(job.id)
    except NotFound:
        view = None
    return Trace(view=view, events=tuple(await world.progress.since(job.id, 0)))


async def claimed_a_while_after(world: World) -> tuple[int, int] | None:
    """What only its next holder sees."""
    world.clock.move(2 * MINUTE)
    claim = await world.jobs.claim(["default"], limit=10, lease=LEASE)
    if claim.more:
        claim = await world.jobs.claim(["default"], limit=10, lease=LEASE)
    for job in claim.jobs:
        assert job.checkpoint == {"row": 1}
        return job.claim_count, job.lost_in_a_row
    return None


def _name(step: Event | Write) -> str:
    return step.__name__


@pytest.mark.parametrize("write", [*SETTLEMENTS, *OTHER_WRITES], ids=_name)
@pytest.mark.parametrize("event", EVENTS, ids=_name)
async def test_a_late_write_changes_nothing(world: World, event: Event, write: Write) -> None:
    await world.jobs.enqueue([a_new_job()])
    job = await claimed(world)
    await world.progress.publish(
        job.lease, [ProgressEvent(job_id=job.id, step="begin", status=StepStatus.STARTED)]
    )
    await world.jobs.save(job.lease, {"row": 1})
    await event(world, job)
    before = await trace(world, job)
    world.clock.move(timedelta(seconds=1))

    said = await write(world, job)

    repeats = event in BY_ITSELF and write in SETTLEMENTS
    assert said in (LOST_OR_REPEATED if repeats else LOST)
    assert await trace(world, job) == before
    assert await claimed_a_while_after(world) == EVENTS[event]
