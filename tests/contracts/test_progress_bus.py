"""What every `ProgressBus` promises."""

import asyncio

import pytest

from hymical.domain.errors import JobLost
from hymical.domain.ids import JobId
from hymical.domain.jobs import (
    Completed,
    Failed,
    Job,
    JobFailure,
    Json,
    Later,
    Paused,
    Settlement,
)
from hymical.domain.progress import ProgressEvent, RecordedEvent, StepStatus
from hymical.ports.jobs import JobVerdict, SettledJob
from tests.builders import LEASE, a_new_job, a_question
from tests.worlds import World


async def running(world: World) -> Job:
    """A new job in the hands of a worker."""
    await world.jobs.enqueue([a_new_job()])
    return await claimed(world)


async def claimed(world: World) -> Job:
    (job,) = (await world.jobs.claim(["default"], limit=1, lease=LEASE)).jobs
    return job


def an_event(
    job: Job, step: str = "rows", status: StepStatus = StepStatus.PROGRESS, message: Json | None = None
) -> ProgressEvent:
    return ProgressEvent(job_id=job.id, step=step, status=status, message=message)


async def told(world: World, job: Job, since: int = 0) -> list[tuple[int, str]]:
    return [(one.number, one.event.step) for one in await world.progress.since(job.id, since)]


async def test_an_event_is_kept_whole(world: World) -> None:
    job = await running(world)
    events = [
        an_event(job, "rows", StepStatus.STARTED),
        an_event(
            job, "rows", StepStatus.PROGRESS, {"done": 3, "of": None, "name": "ü😀", "deep": [{"x": 0.5}]}
        ),
        an_event(job, "rows", StepStatus.COMPLETED, {}),
        an_event(job, "mail", StepStatus.SKIPPED),
    ]

    await world.progress.publish(job.lease, events)

    now = world.clock.now()
    assert list(await world.progress.since(job.id, 0)) == [
        RecordedEvent(number=number, at=now, event=event) for number, event in enumerate(events, 1)
    ]
    view = await world.job_history.get(job.id)
    assert (view.progress, view.event_count) == (events[-1], 4)


async def test_events_are_numbered_without_gaps_over_all_runs_of_a_job(world: World) -> None:
    job = await running(world)
    await world.progress.publish(job.lease, [an_event(job, "one")])
    await world.progress.publish(job.lease, [an_event(job, "two"), an_event(job, "three")])
    await world.jobs.settle(
        [
            SettledJob(
                lease=job.lease,
                settlement=Paused(question=a_question()),
                event=an_event(job, "ask", StepStatus.PAUSED),
            )
        ]
    )
    await world.jobs.answer(job.id, "yes", by="key_1")
    again = await claimed(world)
    await world.progress.publish(again.lease, [an_event(again, "five")])
    world.clock.move(LEASE)
    after_loss = await claimed(world)
    await world.progress.publish(after_loss.lease, [an_event(after_loss, "six")])

    steps = ["one", "two", "three", "ask", "five", "six"]
    assert await told(world, job) == list(enumerate(steps, 1))


async def test_events_that_are_published_at_the_same_time_are_numbered_without_gaps(world: World) -> None:
    job = await running(world)

    await asyncio.gather(
        *(
            world.progress.publish(job.lease, [an_event(job, str(one)), an_event(job, str(one))])
            for one in range(8)
        )
    )

    events = await told(world, job)
    assert [number for number, _ in events] == list(range(1, 17))
    assert [step for _, step in events[::2]] == [step for _, step in events[1::2]]


async def test_jobs_are_numbered_each_for_itself(world: World) -> None:
    one, other = await running(world), await running(world)
    await world.progress.publish(one.lease, [an_event(one, "a"), an_event(one, "b")])
    await world.progress.publish(other.lease, [an_event(other, "c")])

    assert await told(world, one) == [(1, "a"), (2, "b")]
    assert await told(world, other) == [(1, "c")]


async def test_since_gives_what_is_behind_a_number(world: World) -> None:
    job = await running(world)
    await world.progress.publish(job.lease, [an_event(job, step) for step in "abcd"])

    assert await told(world, job, 2) == [(3, "c"), (4, "d")]
    assert await told(world, job, 4) == await told(world, job, 99) == []
    assert await told(world, job, -1) == await told(world, job, 0)
    assert [one.number for one in await world.progress.since(job.id, 1, limit=2)] == [2, 3]
    assert list(await world.progress.since(JobId("job_missing"), 0)) == []


async def test_events_stay_when_the_job_ends_and_go_with_it(world: World) -> None:
    job = await running(world)
    await world.progress.publish(job.lease, [an_event(job, "a")])
    await world.jobs.settle([SettledJob(lease=job.lease, settlement=Completed())])
    assert await told(world, job) == [(1, "a")]

    await world.delete_job(job.id)

    assert await told(world, job) == []


async def test_what_is_rolled_back_was_not_published(world: World) -> None:
    job = await running(world)
    with pytest.raises(ZeroDivisionError):
        async with world.transactions.begin():
            await world.progress.publish(job.lease, [an_event(job, "a")])
            raise ZeroDivisionError

    await world.progress.publish(job.lease, [an_event(job, "b")])

    assert await told(world, job) == [(1, "b")]


async def test_whoever_lost_the_lease_publishes_nothing(world: World) -> None:
    overtaken = await running(world)
    world.clock.move(LEASE)
    holder = await claimed(world)
    await world.progress.publish(holder.lease, [an_event(holder, "a")])

    with pytest.raises(JobLost) as lost:
        await world.progress.publish(overtaken.lease, [an_event(overtaken, "b"), an_event(overtaken, "c")])

    assert lost.value.job_id == overtaken.id
    await world.progress.publish(holder.lease, [an_event(holder, "d")])
    assert await told(world, holder) == [(1, "a"), (2, "d")]


async def test_a_lost_settlement_tells_nothing(world: World) -> None:
    overtaken = await running(world)
    world.clock.move(LEASE)
    await claimed(world)

    verdicts = await world.jobs.settle(
        [
            SettledJob(
                lease=overtaken.lease,
                settlement=Paused(question=a_question()),
                event=an_event(overtaken, "ask", StepStatus.PAUSED),
            )
        ]
    )

    assert list(verdicts) == [JobVerdict.LOST]
    assert await told(world, overtaken) == []


@pytest.mark.parametrize(
    "settlement",
    [
        Completed(),
        Failed(reason=JobFailure.GAVE_UP, error="no use"),
        Later(delay=LEASE, spends=True, error="boom"),
        Paused(question=a_question()),
    ],
)
async def test_the_bell_rings_for_what_is_published_and_at_the_end_of_a_run(
    world: World, settlement: Settlement
) -> None:
    job = await running(world)
    async with world.progress.changes(job.id) as bell:
        await bell.wait(0)
        await world.progress.publish(job.lease, [an_event(job)])
        assert await bell.wait(5)
        await world.jobs.settle([SettledJob(lease=job.lease, settlement=settlement)])
        assert await bell.wait(5)


async def test_the_bell_rings_for_a_pause_that_is_the_first_event(world: World) -> None:
    job = await running(world)
    async with world.progress.changes(job.id) as bell:
        await bell.wait(0)
        await world.jobs.settle(
            [
                SettledJob(
                    lease=job.lease,
                    settlement=Paused(question=a_question()),
                    event=an_event(job, "ask", StepStatus.PAUSED),
                )
            ]
        )
        assert await bell.wait(5)


async def test_the_bell_rings_for_an_answer_a_cancellation_and_a_retry_by_hand(world: World) -> None:
    job, other = await running(world), await running(world)
    for one in (job, other):
        await world.progress.publish(one.lease, [an_event(one)])
    await world.jobs.settle([SettledJob(lease=job.lease, settlement=Paused(question=a_question()))])
    await world.jobs.settle(
        [SettledJob(lease=other.lease, settlement=Failed(reason=JobFailure.GAVE_UP, error="no use"))]
    )
    async with world.progress.changes(job.id) as bell, world.progress.changes(other.id) as of_other:
        await bell.wait(0)
        await of_other.wait(0)
        await world.jobs.answer(job.id, "yes", by="key_1")
        assert await bell.wait(5)
        await world.jobs.cancel(job.id)
        assert await bell.wait(5)
        await world.jobs.retry(other.id)
        assert await of_other.wait(5)
        assert not await bell.wait(0)


async def test_the_bell_rings_when_the_default_is_taken_for_the_answer(world: World) -> None:
    job = await running(world)
    await world.progress.publish(job.lease, [an_event(job)])
    await world.jobs.settle(
        [SettledJob(lease=job.lease, settlement=Paused(question=a_question(deadline=LEASE)))]
    )
    async with world.progress.changes(job.id) as bell:
        await bell.wait(0)
        world.clock.move(LEASE)
        await world.jobs.claim(["default"], limit=1, lease=LEASE)
        assert await bell.wait(5)


async def test_every_watcher_of_a_job_hears_it(world: World) -> None:
    job, other = await running(world), await running(world)
    async with (
        world.progress.changes(job.id) as one,
        world.progress.changes(job.id) as two,
        world.progress.changes(other.id) as of_other,
    ):
        for bell in (one, two, of_other):
            await bell.wait(0)
        await world.progress.publish(job.lease, [an_event(job)])
        assert await one.wait(5)
        assert await two.wait(5)
        assert not await of_other.wait(0)


async def test_a_watcher_that_left_does_not_keep_others_from_hearing(world: World) -> None:
    job = await running(world)
    async with world.progress.changes(job.id) as stays:
        async with world.progress.changes(job.id):
            pass
        await stays.wait(0)
        await world.progress.publish(job.lease, [an_event(job)])
        assert await stays.wait(5)
    async with world.progress.changes(job.id) as comes_back:
        await comes_back.wait(0)
        await world.progress.publish(job.lease, [an_event(job)])
        assert await comes_back.wait(5)


async def test_a_job_that_is_not_there_can_be_watched_in_vain(world: World) -> None:
    async with world.progress.changes(JobId("job_missing")) as bell:
        await bell.wait(0)
        assert not await bell.wait(0)


async def test_what_a_handler_changes_after_publishing_is_not_published(world: World) -> None:
    job = await running(world)
    rows = [1]
    await world.progress.publish(job.lease, [an_event(job, message={"rows": rows})])

    rows.append(2)

    (kept,) = await world.progress.since(job.id, 0)
    assert kept.event.message == {"rows": [1]}
