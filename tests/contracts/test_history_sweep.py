"""What is removed, and what never is."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import timedelta

import pytest

from hymical.application.retention import CleanUp
from hymical.domain.deliveries import Attempt, Delivered, Delivery, Failed, Later, Reason, fan_out
from hymical.domain.errors import NotFound, NotResendable
from hymical.domain.ids import FormId, JobId
from hymical.domain.jobs import Finished, settle
from hymical.domain.limits import RateLimit
from hymical.domain.outcomes import AttemptOutcome
from hymical.domain.progress import ProgressEvent, StepStatus
from hymical.domain.retention import CleanUpState, Kind, RetentionPolicy
from hymical.ports.deliveries import DeliveryFilter, Settled
from hymical.ports.exports import ExportChunk, Withdrawal
from hymical.ports.forms import SubmissionFilter
from hymical.ports.jobs import JobFilter, SettledJob
from hymical.ports.limits import Asked, Bucket
from tests.builders import LEASE, a_message, a_new_job, a_submission, an_attempt, ids
from tests.worlds import World

DAY = timedelta(days=1)
HISTORY = RetentionPolicy(submissions=None, history=90 * DAY)
BOTH = RetentionPolicy(submissions=30 * DAY, history=90 * DAY)


async def cleaned(world: World, policy: RetentionPolicy) -> dict[Kind, int]:
    """In batches of what is looked at first."""

    async def note(_: CleanUpState) -> None:
        pass

    clean_up = CleanUp(sweep=world.sweep, policy=policy, clock=world.clock)
    done = await clean_up(CleanUpState(), note)
    return {kind: count for kind, count in done.removed.items() if count}


async def settled(world: World, settlement: Delivered | Failed | Later) -> None:
    (claimed,) = (await world.queue.claim(limit=1, lease=LEASE)).deliveries
    attempt: Attempt = an_attempt(claimed.lease.number)
    if not isinstance(settlement, Delivered):
        attempt = an_attempt(claimed.lease.number, AttemptOutcome.HTTP_ERROR, 500)
    await world.queue.settle([Settled(claimed=claimed, settlement=settlement, attempt=attempt)])


async def delivered(world: World) -> Delivery:
    (delivery,) = await world.owes(1)
    await settled(world, Delivered())
    return delivery


async def failed(world: World) -> Delivery:
    (delivery,) = await world.owes(1)
    await settled(world, Failed(reason=Reason.REJECTED))
    return delivery


async def pending(world: World) -> Delivery:
    (delivery,) = await world.owes(1)
    return delivery


async def processing(world: World) -> Delivery:
    (delivery,) = await world.owes(1)
    await world.queue.claim(limit=1, lease=400 * DAY)
    return delivery


async def views(world: World) -> Sequence[str]:
    return [one.id for one in await world.history.page(DeliveryFilter(), before=None, limit=1_000)]


async def submissions(world: World) -> Sequence[str]:
    found = [
        await world.walk.batch(SubmissionFilter(spam=spam), behind=None, looks=1_000, size=10**8)
        for spam in (False, True)
    ]
    return [one.id for batch in found for one in batch.submissions]


async def test_delivered_ones_go_when_they_are_old_and_their_submissions_stay(world: World) -> None:
    old = await delivered(world)
    world.clock.move(2 * DAY)
    new = await delivered(world)
    world.clock.move(89 * DAY)

    assert await cleaned(world, HISTORY) == {Kind.DELIVERIES: 1}
    assert await views(world) == [new.id]
    assert await world.history.attempts(old.id) == []
    assert len(await submissions(world)) == 2
    assert await cleaned(world, HISTORY) == {}


@pytest.mark.parametrize("kept", [failed, pending, processing])
async def test_what_is_not_delivered_stays_with_its_submission(
    world: World, kept: Callable[[World], Awaitable[Delivery]]
) -> None:
    delivery = await kept(world)
    before = await world.history.get(delivery.id)
    world.clock.move(390 * DAY)

    assert await cleaned(world, BOTH) == {}
    assert (await world.history.get(delivery.id)).state == before.state
    assert len(await submissions(world)) == 1


async def test_values_go_by_their_own_setting_from_wherever_they_are(world: World) -> None:
    delivery = await delivered(world)
    world.clock.move(31 * DAY)

    assert await cleaned(world, BOTH) == {Kind.SUBMISSIONS: 1}
    assert await submissions(world) == []
    assert await views(world) == [delivery.id]
    (attempt,) = await world.history.attempts(delivery.id)
    assert attempt.response_excerpt is None
    with pytest.raises(NotResendable):
        await world.queue.resend(delivery.id, ids.delivery())

    world.clock.move(60 * DAY)
    assert await cleaned(world, BOTH) == {Kind.DELIVERIES: 1}
    assert await views(world) == []


async def test_a_submission_of_which_one_delivery_failed_stays(world: World) -> None:
    first = await world.destination("https://example.com/1")
    second = await world.destination("https://example.com/2")
    submission = a_submission(at=world.clock.now())
    message = a_message(submission)
    async with world.transactions.begin():
        await world.stores([submission])
        await world.queue.owe(
            [message], fan_out(message, [first, second], now=world.clock.now(), new_id=ids.delivery)
        )
    await settled(world, Delivered())
    await settled(world, Failed(reason=Reason.GONE))
    world.clock.move(400 * DAY)

    assert await cleaned(world, BOTH) == {Kind.DELIVERIES: 1}
    assert await submissions(world) == [submission.id]
    (left,) = await views(world)
    await world.queue.replay(left)  # type: ignore[arg-type]


async def test_a_submission_that_nobody_was_told_of_goes_too(world: World) -> None:
    await world.destination()
    await world.stores([replace(a_submission(at=world.clock.now()), is_spam=True), a_submission()])
    world.clock.move(30 * DAY)
    assert await cleaned(world, BOTH) == {}
    world.clock.move(timedelta(seconds=1))
    assert await cleaned(world, BOTH) == {Kind.SUBMISSIONS: 2}


async def test_nothing_is_removed_where_everything_is_kept(world: World) -> None:
    await delivered(world)
    world.clock.move(10_000 * DAY)
    assert await cleaned(world, RetentionPolicy(submissions=None, history=None)) == {}


async def test_jobs_go_with_their_events_once_they_have_ended(world: World) -> None:
    ended, open_ = await world.jobs.enqueue([a_new_job(), a_new_job("other")])
    (job,) = (await world.jobs.claim(["default"], limit=1, lease=LEASE)).jobs
    event = ProgressEvent(job_id=job.id, step="a", status=StepStatus.STARTED)
    await world.progress.publish(job.lease, [event])
    await world.jobs.settle([SettledJob(lease=job.lease, settlement=settle(job, Finished(), 0.5))])
    world.clock.move(90 * DAY)
    assert await cleaned(world, HISTORY) == {}
    world.clock.move(timedelta(seconds=1))

    assert await cleaned(world, HISTORY) == {Kind.JOBS: 1}
    with pytest.raises(NotFound):
        await world.job_history.get(ended.job_id)
    assert await world.progress.since(ended.job_id, 0) == []
    assert (await world.job_history.get(open_.job_id)).state == "pending"


async def test_files_go_when_their_time_is_up_and_their_jobs_stay(world: World) -> None:
    await world.destination()
    jobs = [one.job_id for one in await world.jobs.enqueue([a_new_job(), a_new_job()])]
    for job_id, keep in zip(jobs, (DAY, 2 * DAY), strict=True):
        await _file(world, job_id, keep)
    world.clock.move(DAY)

    assert await cleaned(world, HISTORY) == {Kind.EXPORTS: 1}
    first, second = [await world.exports.find(job_id) for job_id in jobs]
    assert first is not None
    assert second is not None
    assert (first.withdrawn, second.withdrawn) == (Withdrawal.EXPIRED, None)
    assert await world.exports.read(jobs[1], 0) == b"x"
    assert len(await world.job_history.page(JobFilter(), before=None, limit=10)) == 2


async def test_buckets_go_once_they_are_full_again(world: World) -> None:
    limit = RateLimit(requests=10, window=timedelta(seconds=100))
    await world.limiter.spend([Asked(source=Bucket(key=b"a" * 32, limit=limit), form=None)])
    world.clock.move(timedelta(seconds=5))
    await world.limiter.spend([Asked(source=Bucket(key=b"b" * 32, limit=limit), form=None)])
    world.clock.move(timedelta(seconds=5))
    assert await cleaned(world, HISTORY) == {Kind.RATE_LIMITS: 1}


async def test_many_go_in_batches_of_any_size(world: World) -> None:
    await world.owes(25)
    while claimed := (await world.queue.claim(limit=100, lease=LEASE)).deliveries:
        await world.queue.settle(
            [
                Settled(claimed=one, settlement=Delivered(), attempt=an_attempt(one.lease.number))
                for one in claimed
            ]
        )
    world.clock.move(100 * DAY)
    for kind in (Kind.SUBMISSIONS, Kind.DELIVERIES):
        removed, behind = 0, ""
        while True:
            batch = await world.sweep.sweep(kind, age=DAY, behind=behind, looks=4)
            removed += batch.removed
            assert batch.removed <= 4
            if batch.end is None:
                break
            behind = batch.end
        assert removed == 25


async def _file(world: World, job_id: JobId, keep: timedelta) -> None:
    await world.exports.begin(job_id, FormId("contact"), received_after=None, keep=keep)
    chunk = ExportChunk(number=0, body=b"x", reached=None, last=True)
    await world.exports.append(job_id, chunk, keep=keep)
