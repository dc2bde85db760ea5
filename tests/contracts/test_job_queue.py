"""What every `JobQueue` and `JobHistory` promises."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from uuid import uuid4

import pytest

from hymical.domain.errors import (
    AlreadyExists,
    InvalidValue,
    JobEnded,
    JobLost,
    JobNotFailed,
    JobNotWaiting,
    NotFound,
)
from hymical.domain.ids import JobId, LeaseToken
from hymical.domain.jobs import (
    Answer,
    Completed,
    Failed,
    Job,
    JobFailure,
    JobState,
    Later,
    NewJob,
    Paused,
    Priority,
    Settlement,
)
from hymical.domain.progress import ProgressEvent, StepStatus
from hymical.ports.jobs import Enqueued, JobFilter, JobVerdict, JobView, SettledJob
from hymical.ports.workers import LIVE_WITHIN, WorkerPresence
from tests.builders import LEASE, a_new_job, a_question, ids
from tests.worlds import World

MOMENT = timedelta(microseconds=1)
MINUTE = timedelta(minutes=1)
GAVE_UP = Failed(reason=JobFailure.GAVE_UP, error="no use")


async def enqueued(world: World, *jobs: NewJob) -> Sequence[JobId]:
    return [one.job_id for one in await world.jobs.enqueue(jobs or [a_new_job()])]


async def claim(world: World, limit: int = 100, *queues: str) -> Sequence[Job]:
    return (await world.jobs.claim(queues or ["default"], limit=limit, lease=LEASE)).jobs


async def claim_all(world: World) -> Sequence[Job]:
    """What is claimed by one who looks again for as long as there may be more."""
    jobs = list[Job]()
    while True:
        claim = await world.jobs.claim(["default"], limit=10, lease=LEASE)
        jobs += claim.jobs
        if not claim.more:
            return jobs


async def claimed_ids(world: World, limit: int = 100, *queues: str) -> Sequence[JobId]:
    return [job.id for job in await claim(world, limit, *queues)]


async def claim_one(world: World) -> Job:
    (job,) = await claim(world, 1)
    return job


async def running(world: World, *, max_retries: int = 3, unique_key: str | None = None) -> Job:
    """A new job in the hands of a worker."""
    await enqueued(world, a_new_job(max_retries=max_retries, unique_key=unique_key))
    return await claim_one(world)


async def ended(world: World, job: Job, settlement: Settlement) -> JobVerdict:
    (verdict,) = await world.jobs.settle([SettledJob(lease=job.lease, settlement=settlement)])
    return verdict


async def waiting(world: World, *, deadline: timedelta | None = None) -> Job:
    """A job that waits for a person."""
    job = await running(world)
    assert await ended(world, job, Paused(question=a_question(deadline=deadline))) is JobVerdict.SETTLED
    return job


async def seen(world: World, job: Job | JobId) -> JobView:
    return await world.job_history.get(job.id if isinstance(job, Job) else job)


def an_event(job: Job, step: str = "send", status: StepStatus = StepStatus.PAUSED) -> ProgressEvent:
    return ProgressEvent(job_id=job.id, step=step, status=status, message={"question": "Send them all?"})


# Enqueuing


async def test_a_claim_brings_what_was_enqueued(world: World) -> None:
    new = a_new_job(payload={"form_id": "contact", "ids": [1, None, "ü😀"], "deep": {"x": 1.5}})

    assert await world.jobs.enqueue([new]) == [Enqueued(job_id=new.id, duplicate=False)]

    view = await seen(world, new.id)
    assert (view.state, view.queue, view.type, view.version) == (JobState.PENDING, "default", "count", 1)
    assert (view.run_at, view.created_at, view.payload) == (
        world.clock.now(),
        world.clock.now(),
        json.loads(new.payload),
    )
    assert (view.started_at, view.finished_at, view.answers, view.event_count) == (None, None, {}, 0)
    claim = await world.jobs.claim(["default"], limit=2, lease=LEASE)
    (job,) = claim.jobs
    assert claim.now == world.clock.now()
    assert (job.id, job.queue, job.type, job.version) == (new.id, "default", "count", 1)
    assert (job.payload, job.priority) == (json.loads(new.payload), Priority.NORMAL)
    assert (job.claim_count, job.retry_count, job.max_retries, job.lost_in_a_row) == (1, 0, 3, 0)
    assert (job.answers, job.checkpoint, job.lease.job_id) == ({}, None, new.id)
    view = await seen(world, new.id)
    assert (view.state, view.started_at) == (JobState.PROCESSING, world.clock.now())


async def test_many_are_enqueued_in_one_step_and_answered_in_their_order(world: World) -> None:
    new = [a_new_job(queue=queue) for queue in ("exports", "default", "exports", "default")]

    assert [one.job_id for one in await world.jobs.enqueue(new[::-1])] == [job.id for job in new[::-1]]

    assert set(await claimed_ids(world, 10, "default", "exports")) == {job.id for job in new}


async def test_jobs_of_one_batch_keep_what_each_has_of_its_own(world: World) -> None:
    later = world.clock.now() + MINUTE
    new = [
        a_new_job(type="count", queue="exports", payload={"n": 1}, priority=Priority.LOW, unique_key="z"),
        a_new_job(type="replay", payload={"n": 2}, run_at=later, max_retries=7),
        a_new_job(type="count", payload={"n": 3}, max_retries=1, unique_key="a"),
        a_new_job(type="count", queue="exports", payload={"n": 4}, run_at=later + MINUTE),
        a_new_job(type="replay", queue="exports", payload={"n": 5}, priority=Priority.URGENT, unique_key="z"),
    ]

    await world.jobs.enqueue(new)

    for job in new:
        view = await seen(world, job.id)
        assert (view.type, view.queue, view.payload) == (job.type, job.queue, json.loads(job.payload))
        assert (view.priority, view.max_retries, view.unique_key) == (
            job.priority,
            job.max_retries,
            job.unique_key,
        )
        assert view.run_at == (job.run_at or world.clock.now())


async def test_the_first_of_a_batch_has_the_key_also_where_their_queues_differ(world: World) -> None:
    first, second = a_new_job(queue="exports", unique_key="a"), a_new_job(queue="default", unique_key="a")

    assert list(await world.jobs.enqueue([first, second])) == [
        Enqueued(job_id=first.id, duplicate=False),
        Enqueued(job_id=first.id, duplicate=True),
    ]


async def test_nothing_is_enqueued_by_an_empty_batch(world: World) -> None:
    assert list(await world.jobs.enqueue([])) == []


async def test_a_payload_is_kept_as_it_was_when_it_was_enqueued(world: World) -> None:
    payload = {"pages": [1, 2]}
    (job_id,) = await enqueued(world, a_new_job(payload=payload))

    payload["pages"].append(3)

    assert (await seen(world, job_id)).payload == {"pages": [1, 2]}


async def test_a_unique_key_coalesces_and_says_so(world: World) -> None:
    first = a_new_job(unique_key="contact")
    await world.jobs.enqueue([first])

    (again,) = await world.jobs.enqueue([a_new_job(unique_key="contact")])

    assert again == Enqueued(job_id=first.id, duplicate=True)
    assert await claimed_ids(world) == [first.id]


async def test_a_unique_key_coalesces_within_one_batch(world: World) -> None:
    first, second, other = (
        a_new_job(unique_key="contact"),
        a_new_job(unique_key="contact"),
        a_new_job(unique_key="survey"),
    )

    assert list(await world.jobs.enqueue([first, second, other])) == [
        Enqueued(job_id=first.id, duplicate=False),
        Enqueued(job_id=first.id, duplicate=True),
        Enqueued(job_id=other.id, duplicate=False),
    ]

    assert set(await claimed_ids(world)) == {first.id, other.id}


async def test_jobs_of_another_type_or_without_a_key_do_not_coalesce(world: World) -> None:
    one, other = a_new_job(unique_key="contact"), a_new_job(type="replay", unique_key="contact")
    free, as_free = a_new_job(), a_new_job()

    assert not any(one.duplicate for one in await world.jobs.enqueue([one, other, free, as_free]))


@pytest.mark.parametrize("state", [JobState.PENDING, JobState.PROCESSING, JobState.PAUSED])
async def test_a_unique_key_is_taken_for_as_long_as_its_job_has_not_ended(
    world: World, state: JobState
) -> None:
    (first,) = await enqueued(world, a_new_job(unique_key="contact"))
    if state is not JobState.PENDING:
        job = await claim_one(world)
        if state is JobState.PAUSED:
            await ended(world, job, Paused(question=a_question()))

    (again,) = await world.jobs.enqueue([a_new_job(unique_key="contact")])

    assert again == Enqueued(job_id=first, duplicate=True)


@pytest.mark.parametrize("end", [Completed(), GAVE_UP, None])
async def test_a_unique_key_is_free_once_its_job_has_ended(world: World, end: Settlement | None) -> None:
    first = await running(world, unique_key="contact")
    if end is None:
        await world.jobs.cancel(first.id)
    else:
        await ended(world, first, end)
    new = a_new_job(unique_key="contact")

    assert await world.jobs.enqueue([new]) == [Enqueued(job_id=new.id, duplicate=False)]

    assert await claimed_ids(world) == [new.id]


async def test_what_is_rolled_back_is_not_enqueued(world: World) -> None:
    new = a_new_job(unique_key="contact")

    with pytest.raises(ZeroDivisionError):
        async with world.transactions.begin():
            await world.jobs.enqueue([new])
            raise ZeroDivisionError

    assert not await claim(world)
    with pytest.raises(NotFound):
        await seen(world, new.id)
    (again,) = await world.jobs.enqueue([a_new_job(unique_key="contact")])
    assert not again.duplicate


# Claiming


async def test_no_two_claims_take_the_same_job(world: World) -> None:
    new = await enqueued(world, *(a_new_job() for _ in range(20)))

    claims = await asyncio.gather(*(claim(world, 5) for _ in range(8)))
    claims.append(await claim(world))

    taken = [job for claim in claims for job in claim]
    assert sorted(job.id for job in taken) == sorted(new)
    assert len({job.lease.token for job in taken}) == 20


async def test_the_more_urgent_come_first_then_those_that_are_due_longest(world: World) -> None:
    now = world.clock.now()
    low = a_new_job(priority=Priority.LOW, run_at=now - 9 * MINUTE)
    late, early = a_new_job(run_at=now - MINUTE), a_new_job(run_at=now - 2 * MINUTE)
    first, second = (a_new_job(run_at=now - MINUTE) for _ in range(2))
    urgent = a_new_job(priority=Priority.URGENT)
    high = a_new_job(priority=Priority.HIGH)
    await enqueued(world, low, second, late, early, first, urgent, high)

    order = [(await claim_one(world)).id for _ in range(7)]

    assert order == [urgent.id, high.id, early.id, late.id, first.id, second.id, low.id]


async def test_one_claim_gives_them_in_the_same_order(world: World) -> None:
    now = world.clock.now()
    low, due, waited, urgent = (
        a_new_job(priority=Priority.LOW, run_at=now - MINUTE),
        a_new_job(),
        a_new_job(run_at=now - MINUTE),
        a_new_job(priority=Priority.URGENT),
    )
    await enqueued(world, low, due, waited, urgent)

    assert await claimed_ids(world, 3) == [urgent.id, waited.id, due.id]
    assert await claimed_ids(world, 3) == [low.id]


async def test_nothing_is_claimed_before_its_time(world: World) -> None:
    (job_id,) = await enqueued(world, a_new_job(run_at=world.clock.now() + MINUTE))

    world.clock.move(MINUTE - MOMENT)
    assert not await claim(world)
    world.clock.move(MOMENT)

    assert await claimed_ids(world) == [job_id]


async def test_one_that_is_due_earlier_than_those_claimed_before_is_still_found(world: World) -> None:
    await enqueued(world, *(a_new_job() for _ in range(3)))
    await claim(world)
    world.clock.move(timedelta(hours=1))
    (backdated,) = await enqueued(world, a_new_job(run_at=world.clock.now() - timedelta(days=1)))

    # whoever remembers where it got to may look there first, but for no longer than two seconds
    taken = list(await claimed_ids(world))
    world.clock.move(timedelta(seconds=3))
    taken += await claimed_ids(world)

    assert backdated in taken


async def test_a_claim_takes_no_more_than_its_limit_and_says_that_there_is_more(world: World) -> None:
    await enqueued(world, *(a_new_job() for _ in range(5)))

    first = await world.jobs.claim(["default"], limit=3, lease=LEASE)
    second = await world.jobs.claim(["default"], limit=3, lease=LEASE)

    assert (len(first.jobs), first.more) == (3, True)
    assert (len(second.jobs), second.more) == (2, False)


async def test_an_idle_worker_is_told_when_the_next_one_is_due(world: World) -> None:
    now = world.clock.now()
    assert (await world.jobs.claim(["default"], limit=1, lease=LEASE)).next_due is None
    await enqueued(
        world,
        a_new_job(run_at=now + 2 * MINUTE, priority=Priority.URGENT),
        a_new_job(run_at=now + MINUTE, priority=Priority.LOW),
        a_new_job(run_at=now + timedelta(seconds=1), queue="exports"),
    )

    found = await world.jobs.claim(["default"], limit=1, lease=LEASE)
    of_both = await world.jobs.claim(["default", "exports"], limit=1, lease=LEASE)

    assert (list(found.jobs), found.more, found.next_due) == ([], False, MINUTE)
    assert of_both.next_due == timedelta(seconds=1)


async def test_only_the_queues_that_were_asked_for_are_drained(world: World) -> None:
    of_default, of_exports = await enqueued(world, a_new_job(), a_new_job(queue="exports"))

    assert await claimed_ids(world, 10, "exports") == [of_exports]
    assert await claimed_ids(world, 10, "scrapes") == []
    assert await claimed_ids(world, 10, "default", "scrapes") == [of_default]


async def test_several_queues_are_taken_in_turn(world: World) -> None:
    queues = ("default", "exports", "metrics")
    await enqueued(world, *(a_new_job(queue=queue) for queue in queues for _ in range(6)))

    drained = [job.queue for _ in range(6) for job in await claim(world, 1, *queues)]

    assert {queue: drained.count(queue) for queue in queues} == dict.fromkeys(queues, 2)


async def test_a_claim_that_one_queue_does_not_fill_goes_on_with_the_next(world: World) -> None:
    new = await enqueued(world, *(a_new_job(queue=queue) for queue in ("default", "exports", "metrics")))

    claim = await world.jobs.claim(["default", "exports", "metrics"], limit=10, lease=LEASE)

    assert {job.id for job in claim.jobs} == set(new)
    assert not claim.more


async def test_a_paused_queue_gives_none_and_what_runs_goes_on(world: World) -> None:
    job = await running(world)
    (other,) = await enqueued(world)

    await world.jobs.pause_queue("default")
    await world.jobs.pause_queue("default")

    assert (await world.jobs.claim(["default"], limit=1, lease=LEASE)).next_due is None
    world.clock.move(LEASE)
    assert not await claim(world)
    assert await ended(world, job, Completed()) is JobVerdict.SETTLED
    await world.jobs.resume_queue("default")
    await world.jobs.resume_queue("default")
    assert await claimed_ids(world) == [other]


async def test_a_paused_queue_does_not_hold_up_another(world: World) -> None:
    await enqueued(world, *(a_new_job() for _ in range(3)))
    (of_exports,) = await enqueued(world, a_new_job(queue="exports"))
    await world.jobs.pause_queue("default")

    assert await claimed_ids(world, 2, "default", "exports") == [of_exports]


# Leases


async def test_an_expired_lease_is_anyone_s_and_counted_as_lost(world: World) -> None:
    overtaken = await running(world)
    world.clock.move(LEASE - MOMENT)
    assert not await claim(world)
    world.clock.move(MOMENT)

    holder = await claim_one(world)

    assert (holder.id, holder.claim_count, holder.lost_in_a_row, holder.retry_count) == (
        overtaken.id,
        2,
        1,
        0,
    )
    assert holder.lease.token != overtaken.lease.token
    world.clock.move(LEASE)
    assert (await claim_one(world)).lost_in_a_row == 2


@pytest.mark.parametrize(
    "settlement",
    [
        Later(delay=timedelta(0), spends=True, error="boom"),
        Later(delay=timedelta(0), spends=False),
        Paused(question=a_question()),
        Failed(reason=JobFailure.WORKER_LOST, error="lost 5 times"),
    ],
)
async def test_a_settlement_ends_the_row_of_lost_workers(world: World, settlement: Settlement) -> None:
    await running(world)
    world.clock.move(LEASE)
    job = await claim_one(world)
    assert job.lost_in_a_row == 1

    await ended(world, job, settlement)
    if isinstance(settlement, Paused):
        await world.jobs.answer(job.id, "yes", by="key_1")
    elif isinstance(settlement, Failed):
        await world.jobs.retry(job.id)

    assert (await claim_one(world)).lost_in_a_row == 0


async def test_what_is_renewed_is_kept(world: World) -> None:
    job = await running(world)
    world.clock.move(LEASE - MOMENT)

    assert set(await world.jobs.renew([job.lease], lease=LEASE)) == {job.id}

    world.clock.move(LEASE - MOMENT)
    assert not await claim(world)
    world.clock.move(MOMENT)
    assert (await claim_one(world)).id == job.id


async def test_renewing_tells_which_are_still_held(world: World) -> None:
    await enqueued(world, *(a_new_job() for _ in range(3)))
    kept, cancelled, done = await claim(world)
    await world.jobs.cancel(cancelled.id)
    await ended(world, done, Completed())
    leases = [job.lease for job in (done, cancelled, kept)]

    assert set(await world.jobs.still_held(leases)) == {kept.id}
    assert set(await world.jobs.renew(leases, lease=LEASE)) == {kept.id}
    assert set(await world.jobs.still_held([])) == set(await world.jobs.renew([], lease=LEASE)) == set()


async def test_whoever_was_overtaken_holds_it_no_longer(world: World) -> None:
    overtaken = await running(world)
    world.clock.move(LEASE)
    assert set(await world.jobs.still_held([overtaken.lease])) == {overtaken.id}

    holder = await claim_one(world)

    assert set(await world.jobs.still_held([overtaken.lease])) == set()
    assert set(await world.jobs.still_held([holder.lease])) == {holder.id}


async def test_what_is_released_is_due_at_once_and_nothing_is_spent(world: World) -> None:
    job = await running(world)

    await world.jobs.release([job.lease])
    await world.jobs.release([job.lease])

    view = await seen(world, job)
    assert (view.state, view.retry_count, view.error) == (JobState.PENDING, 0, None)
    again = await claim_one(world)
    assert (again.id, again.claim_count, again.lost_in_a_row) == (job.id, 2, 0)
    assert set(await world.jobs.still_held([job.lease])) == set()


async def test_what_was_saved_is_what_the_next_run_begins_with(world: World) -> None:
    job = await running(world)
    await world.jobs.save(job.lease, {"row": 1})
    await world.jobs.save(job.lease, {"row": 2, "names": ["ü"]})
    world.clock.move(LEASE)

    again = await claim_one(world)
    assert again.checkpoint == {"row": 2, "names": ["ü"]}

    await ended(world, again, Later(delay=timedelta(0), spends=True, error="boom"))
    assert (await claim_one(world)).checkpoint == again.checkpoint


async def test_what_is_saved_in_a_transaction_is_saved_with_it_or_not_at_all(world: World) -> None:
    job = await running(world)
    with pytest.raises(ZeroDivisionError):
        async with world.transactions.begin():
            await world.jobs.save(job.lease, {"row": 1})
            raise ZeroDivisionError

    world.clock.move(LEASE)
    assert (await claim_one(world)).checkpoint is None


async def test_whoever_lost_the_lease_saves_nothing_and_undoes_what_went_with_it(world: World) -> None:
    overtaken = await running(world)
    world.clock.move(LEASE)
    await claim_one(world)
    effect = a_new_job(queue="exports")

    with pytest.raises(JobLost) as lost:
        async with world.transactions.begin():
            await world.jobs.enqueue([effect])
            await world.jobs.save(overtaken.lease, {"row": 1})

    assert lost.value.job_id == overtaken.id
    assert not await claim(world, 1, "exports")


# Settling


async def test_a_completed_job_keeps_its_result(world: World) -> None:
    job = await running(world)
    await ended(world, job, Later(delay=timedelta(0), spends=True, error="boom"))
    job = await claim_one(world)
    world.clock.move(timedelta(seconds=3))

    assert await ended(world, job, Completed(result={"rows": 3})) is JobVerdict.SETTLED

    view = await seen(world, job)
    assert (view.state, view.result, view.error) == (JobState.COMPLETED, {"rows": 3}, None)
    assert (view.finished_at, view.failure_reason) == (world.clock.now(), None)
    world.clock.move(timedelta(days=1))
    assert not await claim(world)


async def test_a_result_may_be_none(world: World) -> None:
    job = await running(world)

    await ended(world, job, Completed())

    assert (await seen(world, job)).result is None


async def test_an_error_spends_a_retry_and_waits_by_the_database_s_clock(world: World) -> None:
    job = await running(world)
    world.clock.move(timedelta(seconds=3))

    await ended(world, job, Later(delay=MINUTE, spends=True, error="boom"))

    view = await seen(world, job)
    assert (view.state, view.retry_count, view.error) == (JobState.PENDING, 1, "boom")
    assert (view.run_at, view.finished_at) == (world.clock.now() + MINUTE, None)
    world.clock.move(MINUTE - MOMENT)
    assert not await claim(world)
    world.clock.move(MOMENT)
    again = await claim_one(world)
    assert (again.retry_count, again.claim_count) == (1, 2)


async def test_what_is_put_off_spends_nothing(world: World) -> None:
    job = await running(world)

    await ended(world, job, Later(delay=MINUTE, spends=False, error="they ask to wait"))

    view = await seen(world, job)
    assert (view.retry_count, view.error) == (0, "they ask to wait")
    assert view.run_at == world.clock.now() + MINUTE


@pytest.mark.parametrize("reason", JobFailure)
async def test_a_failed_job_keeps_its_reason(world: World, reason: JobFailure) -> None:
    job = await running(world)

    await ended(world, job, Failed(reason=reason, error="no use"))

    view = await seen(world, job)
    assert (view.state, view.failure_reason, view.error) == (JobState.FAILED, reason, "no use")
    assert view.finished_at == world.clock.now()
    assert not await claim(world)


async def test_a_paused_job_shows_its_question_and_holds_no_lease(world: World) -> None:
    job = await running(world)
    question = a_question(choices=("ja", "nein ü"))

    (verdict,) = await world.jobs.settle(
        [SettledJob(lease=job.lease, settlement=Paused(question=question), event=an_event(job))]
    )

    assert verdict is JobVerdict.SETTLED
    view = await seen(world, job)
    assert (view.state, view.question, view.answer_by) == (JobState.PAUSED, question, None)
    assert (view.finished_at, view.progress, view.event_count) == (None, an_event(job), 1)
    assert set(await world.jobs.still_held([job.lease])) == set()
    world.clock.move(timedelta(days=365))
    assert not await claim(world)


async def test_many_are_settled_in_one_step_each_in_its_own_way(world: World) -> None:
    await enqueued(world, *(a_new_job() for _ in range(6)))
    done, failed, later, paused, cancelled, unknown = await claim(world)
    await world.jobs.cancel(cancelled.id)
    unknown = replace(unknown, lease=replace(unknown.lease, token=LeaseToken(str(uuid4()))))
    settled = [
        SettledJob(lease=paused.lease, settlement=Paused(question=a_question()), event=an_event(paused)),
        SettledJob(lease=cancelled.lease, settlement=Completed()),
        SettledJob(lease=later.lease, settlement=Later(delay=MINUTE, spends=True, error="boom")),
        SettledJob(lease=unknown.lease, settlement=Completed()),
        SettledJob(lease=done.lease, settlement=Completed(result={"rows": 1})),
        SettledJob(lease=failed.lease, settlement=GAVE_UP),
    ]

    verdicts = list(await world.jobs.settle(settled))

    won, lost = JobVerdict.SETTLED, JobVerdict.LOST
    assert verdicts == [won, lost, won, lost, won, won]
    states = [(await seen(world, job)).state for job in (done, failed, later, paused, cancelled, unknown)]
    assert states == ["completed", "failed", "pending", "paused", "cancelled", "processing"]
    assert list(await world.jobs.settle([])) == []


async def test_a_settlement_within_its_token_counts_even_after_its_time(world: World) -> None:
    job = await running(world)
    world.clock.move(LEASE * 2)

    assert await ended(world, job, Completed()) is JobVerdict.SETTLED


@pytest.mark.parametrize(
    "settlement",
    [
        Completed(result={"rows": 1}),
        GAVE_UP,
        Later(delay=MINUTE, spends=True, error="boom"),
        Paused(question=a_question()),
    ],
)
async def test_a_settlement_that_is_repeated_is_known_again_and_counts_once(
    world: World, settlement: Settlement
) -> None:
    job = await running(world)
    settled = SettledJob(lease=job.lease, settlement=settlement, event=an_event(job))
    paused = isinstance(settlement, Paused)
    once = settled if paused else replace(settled, event=None)
    assert list(await world.jobs.settle([once])) == [JobVerdict.SETTLED]
    before = await seen(world, job)
    world.clock.move(timedelta(seconds=1))

    assert list(await world.jobs.settle([once])) == [JobVerdict.REPEATED]

    assert await seen(world, job) == before
    assert len(await world.progress.since(job.id, 0)) == paused


async def test_a_settlement_that_is_repeated_after_the_next_claim_is_lost(world: World) -> None:
    job = await running(world)
    await ended(world, job, Later(delay=timedelta(0), spends=True, error="boom"))
    again = await claim_one(world)

    assert await ended(world, job, Completed()) is JobVerdict.LOST

    assert await ended(world, again, Completed()) is JobVerdict.SETTLED


async def test_overtaken_and_holder_in_one_batch_are_told_apart(world: World) -> None:
    overtaken = await running(world)
    world.clock.move(LEASE)
    holder = await claim_one(world)

    verdicts = await world.jobs.settle(
        [
            SettledJob(lease=overtaken.lease, settlement=GAVE_UP),
            SettledJob(lease=holder.lease, settlement=Completed()),
        ]
    )

    assert list(verdicts) == [JobVerdict.LOST, JobVerdict.SETTLED]
    assert (await seen(world, holder)).state is JobState.COMPLETED


# Waiting for a person


async def test_an_answer_makes_a_paused_job_pending_and_comes_with_its_next_run(world: World) -> None:
    job = await waiting(world)
    await world.jobs.enqueue([a_new_job(run_at=world.clock.now() + MINUTE)])
    world.clock.move(timedelta(hours=1))

    await world.jobs.answer(job.id, "yes", by="key_1")

    answers = {"send": Answer(text="yes", by="key_1", at=world.clock.now())}
    view = await seen(world, job)
    assert (view.state, view.question, view.answers) == (JobState.PENDING, None, answers)
    assert view.run_at == world.clock.now()
    again = next(one for one in await claim(world) if one.id == job.id)
    assert (again.answers, again.retry_count, again.claim_count) == (answers, 0, 2)


async def test_answers_to_several_questions_are_all_kept(world: World) -> None:
    job = await waiting(world)
    await world.jobs.answer(job.id, "yes", by="key_1", key="send")
    again = await claim_one(world)
    await ended(world, again, Paused(question=a_question("whom", choices=())))

    await world.jobs.answer(job.id, "Zoë & co. 😀\n", by="key_2")

    answers = (await claim_one(world)).answers
    assert {key: (answer.text, answer.by) for key, answer in answers.items()} == {
        "send": ("yes", "key_1"),
        "whom": ("Zoë & co. 😀\n", "key_2"),
    }


@pytest.mark.parametrize("key", [None, "send"])
async def test_a_wrong_answer_is_refused_and_the_job_still_waits(world: World, key: str | None) -> None:
    job = await waiting(world)
    before = await seen(world, job)

    with pytest.raises(InvalidValue):
        await world.jobs.answer(job.id, "maybe", by="key_1", key=key)

    assert await seen(world, job) == before
    await world.jobs.answer(job.id, "no", by="key_1", key=key)


@pytest.mark.parametrize("key", [None, "send"])
async def test_answering_twice_is_refused(world: World, key: str | None) -> None:
    job = await waiting(world)
    await world.jobs.answer(job.id, "yes", by="key_1")
    before = await seen(world, job)

    with pytest.raises(JobNotWaiting) as refused:
        await world.jobs.answer(job.id, "no", by="key_2", key=key)

    assert (refused.value.job_id, refused.value.state) == (job.id, JobState.PENDING)
    assert await seen(world, job) == before


async def test_of_two_answers_at_the_same_time_one_counts(world: World) -> None:
    job = await waiting(world)

    outcomes = await asyncio.gather(
        *(world.jobs.answer(job.id, text, by=text) for text in ("yes", "no")), return_exceptions=True
    )

    assert [type(one) for one in outcomes if one is not None] == [JobNotWaiting]
    (counted,) = [text for text, one in zip(("yes", "no"), outcomes, strict=True) if one is None]
    assert (await seen(world, job)).answers["send"].text == counted


async def test_an_answer_to_another_question_than_the_one_asked_is_refused(world: World) -> None:
    job = await waiting(world)

    with pytest.raises(JobNotWaiting) as refused:
        await world.jobs.answer(job.id, "yes", by="key_1", key="whom")

    assert (refused.value.state, refused.value.question) == (JobState.PAUSED, "send")
    assert (await seen(world, job)).answers == {}


async def test_a_job_that_asks_nothing_cannot_be_answered(world: World) -> None:
    job = await running(world)

    with pytest.raises(JobNotWaiting) as refused:
        await world.jobs.answer(job.id, "yes", by="key_1")
    assert (refused.value.state, refused.value.question) == (JobState.PROCESSING, None)
    await ended(world, job, Completed())
    with pytest.raises(JobNotWaiting) as refused:
        await world.jobs.answer(job.id, "yes", by="key_1", key="send")
    assert refused.value.state == JobState.COMPLETED
    with pytest.raises(NotFound):
        await world.jobs.answer(JobId("job_missing"), "yes", by="key_1", key="send")


async def test_an_answer_that_comes_before_the_pause_is_not_lost(world: World) -> None:
    job = await running(world)

    await world.jobs.answer(job.id, "yes", by="key_1", key="send")
    assert (await seen(world, job)).state is JobState.PROCESSING
    world.clock.move(timedelta(seconds=1))
    (verdict,) = await world.jobs.settle(
        [SettledJob(lease=job.lease, settlement=Paused(question=a_question()), event=an_event(job))]
    )

    assert verdict is JobVerdict.SETTLED
    view = await seen(world, job)
    assert (view.state, view.question, view.run_at) == (JobState.PENDING, None, world.clock.now())
    assert (view.event_count, view.progress) == (1, an_event(job))
    assert (await claim_one(world)).answers["send"].text == "yes"


async def test_an_early_answer_that_does_not_fit_is_dropped_and_the_job_asks(world: World) -> None:
    job = await running(world)
    await world.jobs.answer(job.id, "maybe", by="key_1", key="send")

    await ended(world, job, Paused(question=a_question()))

    view = await seen(world, job)
    assert (view.state, view.question, view.answers) == (JobState.PAUSED, a_question(), {})
    await world.jobs.answer(job.id, "yes", by="key_1", key="send")


async def test_an_early_answer_to_another_question_does_not_keep_a_job_from_asking(world: World) -> None:
    job = await running(world)
    await world.jobs.answer(job.id, "yes", by="key_1", key="whom")

    await ended(world, job, Paused(question=a_question()))

    view = await seen(world, job)
    assert (view.state, list(view.answers)) == (JobState.PAUSED, ["whom"])


async def test_an_early_answer_is_given_once(world: World) -> None:
    job = await running(world)
    await world.jobs.answer(job.id, "yes", by="key_1", key="send")

    with pytest.raises(JobNotWaiting):
        await world.jobs.answer(job.id, "no", by="key_2", key="send")

    assert (await seen(world, job)).answers["send"].text == "yes"


@pytest.mark.parametrize(
    ("key", "text"), [("send", " "), ("send", "a\0b"), ("send", "\ud800"), ("S n", "yes")]
)
async def test_an_early_answer_that_no_question_would_take_is_refused(
    world: World, key: str, text: str
) -> None:
    job = await running(world)

    with pytest.raises(InvalidValue):
        await world.jobs.answer(job.id, text, by="key_1", key=key)

    assert (await seen(world, job)).answers == {}


async def test_an_answer_that_comes_before_the_run_is_given_to_no_run_that_has_not_asked(
    world: World,
) -> None:
    (job_id,) = await enqueued(world)
    await world.jobs.answer(job_id, "yes", by="key_1", key="send")
    view = await seen(world, job_id)
    assert (view.state, view.answers["send"].text) == (JobState.PENDING, "yes")
    job = await claim_one(world)
    assert job.answers == {}

    await ended(world, job, Paused(question=a_question()))

    assert (await seen(world, job_id)).state is JobState.PENDING
    assert (await claim_one(world)).answers["send"].text == "yes"


@pytest.mark.parametrize("settlement", [Later(delay=timedelta(0), spends=True, error="boom"), None])
async def test_an_early_answer_that_does_not_fit_reaches_no_later_run_of_a_job_that_did_not_come_to_ask(
    world: World, settlement: Later | None
) -> None:
    job = await running(world)
    await world.jobs.answer(job.id, "maybe", by="key_1", key="send")
    if settlement is None:
        world.clock.move(LEASE)
    else:
        await ended(world, job, settlement)

    again = await claim_one(world)

    assert again.answers == {}
    await ended(world, again, Paused(question=a_question()))
    view = await seen(world, job)
    assert (view.state, view.answers) == (JobState.PAUSED, {})


async def test_a_question_that_was_answered_before_the_run_is_asked_anew(world: World) -> None:
    job = await waiting(world)
    await world.jobs.answer(job.id, "yes", by="key_1")

    await ended(world, await claim_one(world), Paused(question=a_question()))

    view = await seen(world, job)
    assert (view.state, view.answers) == (JobState.PAUSED, {})


async def test_an_early_answer_serves_one_question(world: World) -> None:
    job = await running(world)
    await world.jobs.answer(job.id, "yes", by="key_1", key="send")
    await world.jobs.release([job.lease])
    await ended(world, await claim_one(world), Paused(question=a_question()))
    again = await claim_one(world)
    assert again.answers["send"].text == "yes"

    await ended(world, again, Paused(question=a_question()))

    view = await seen(world, job)
    assert (view.state, view.answers) == (JobState.PAUSED, {})


async def test_after_the_deadline_the_default_is_the_answer(world: World) -> None:
    job = await waiting(world, deadline=MINUTE)
    assert (await seen(world, job)).answer_by == world.clock.now() + MINUTE
    found = await world.jobs.claim(["default"], limit=1, lease=LEASE)
    assert (list(found.jobs), found.next_due) == ([], MINUTE)
    world.clock.move(MINUTE - MOMENT)
    assert not await claim_all(world)
    world.clock.move(MOMENT)

    (again,) = await claim_all(world)

    assert again.id == job.id
    assert again.answers == {"send": Answer(text="no", by="default", at=world.clock.now())}
    view = await seen(world, job)
    assert (view.question, view.answer_by) == (None, None)


async def test_an_answer_before_the_deadline_is_the_answer(world: World) -> None:
    job = await waiting(world, deadline=MINUTE)
    world.clock.move(MINUTE - MOMENT)

    await world.jobs.answer(job.id, "yes", by="key_1")
    world.clock.move(MINUTE)

    assert (await claim_one(world)).answers["send"].text == "yes"


async def test_once_the_default_was_taken_no_answer_is(world: World) -> None:
    job = await waiting(world, deadline=MINUTE)
    world.clock.move(MINUTE)
    await claim_all(world)

    with pytest.raises(JobNotWaiting):
        await world.jobs.answer(job.id, "yes", by="key_1")
    with pytest.raises(JobNotWaiting):
        await world.jobs.answer(job.id, "yes", by="key_1", key="send")


# Cancelling, and retrying by hand


@pytest.mark.parametrize("state", [JobState.PENDING, JobState.PROCESSING, JobState.PAUSED])
async def test_whatever_has_not_ended_can_be_cancelled(world: World, state: JobState) -> None:
    (job_id,) = await enqueued(world)
    if state is not JobState.PENDING:
        job = await claim_one(world)
        if state is JobState.PAUSED:
            await ended(world, job, Paused(question=a_question(deadline=MINUTE)))
    assert (await seen(world, job_id)).state is state

    await world.jobs.cancel(job_id)

    view = await seen(world, job_id)
    assert (view.state, view.finished_at) == (JobState.CANCELLED, world.clock.now())
    assert (view.question, view.answer_by, view.failure_reason) == (None, None, None)
    world.clock.move(timedelta(days=1))
    assert not await claim(world)
    with pytest.raises(JobNotWaiting):
        await world.jobs.answer(job_id, "yes", by="key_1")


@pytest.mark.parametrize("end", [Completed(), GAVE_UP, None])
async def test_what_has_ended_cannot_be_cancelled(world: World, end: Settlement | None) -> None:
    job = await running(world)
    if end is None:
        await world.jobs.cancel(job.id)
    else:
        await ended(world, job, end)
    before = await seen(world, job)

    with pytest.raises(JobEnded) as refused:
        await world.jobs.cancel(job.id)

    assert (refused.value.job_id, refused.value.state) == (job.id, before.state)
    assert await seen(world, job) == before
    with pytest.raises(NotFound):
        await world.jobs.cancel(JobId("job_missing"))


async def test_a_retry_by_hand_starts_afresh_with_what_was_saved_and_answered(world: World) -> None:
    job = await waiting(world)
    await world.jobs.answer(job.id, "yes", by="key_1")
    job = await claim_one(world)
    await world.jobs.save(job.lease, {"row": 7})
    await ended(world, job, Later(delay=timedelta(0), spends=True, error="boom"))
    await ended(world, await claim_one(world), GAVE_UP)
    world.clock.move(MINUTE)

    await world.jobs.retry(job.id)

    view = await seen(world, job)
    assert (view.state, view.retry_count, view.run_at) == (JobState.PENDING, 0, world.clock.now())
    assert (view.failure_reason, view.finished_at) == (None, None)
    again = await claim_one(world)
    assert (again.checkpoint, again.answers["send"].text) == ({"row": 7}, "yes")
    assert (again.retry_count, again.claim_count, again.lost_in_a_row) == (0, 4, 0)


async def test_only_a_failed_job_is_retried_by_hand(world: World) -> None:
    (job_id,) = await enqueued(world)

    async def refused() -> str:
        with pytest.raises(JobNotFailed) as refusal:
            await world.jobs.retry(job_id)
        assert refusal.value.job_id == job_id
        return refusal.value.state

    states = [await refused()]
    job = await claim_one(world)
    states.append(await refused())
    await ended(world, job, Paused(question=a_question()))
    states.append(await refused())
    await world.jobs.answer(job_id, "yes", by="key_1")
    await ended(world, await claim_one(world), Completed())
    states.append(await refused())
    assert states == ["pending", "processing", "paused", "completed"]
    with pytest.raises(NotFound):
        await world.jobs.retry(JobId("job_missing"))


async def test_a_cancelled_job_is_not_retried(world: World) -> None:
    job = await running(world)
    await world.jobs.cancel(job.id)

    with pytest.raises(JobNotFailed):
        await world.jobs.retry(job.id)


async def test_a_retry_is_refused_while_another_has_its_unique_key(world: World) -> None:
    failed = await running(world, unique_key="contact")
    await ended(world, failed, GAVE_UP)
    other = await running(world, unique_key="contact")

    with pytest.raises(AlreadyExists):
        await world.jobs.retry(failed.id)

    assert (await seen(world, failed)).state is JobState.FAILED
    await ended(world, other, Completed())
    await world.jobs.retry(failed.id)
    assert await claimed_ids(world) == [failed.id]


# Wake-ups


async def test_workers_are_woken_by_whatever_is_due_at_once(world: World) -> None:
    async with world.wakeups.jobs(["default"]) as bell:
        await world.first_ring(bell)
        job = await running(world)
        assert await bell.wait(5)
        await world.jobs.release([job.lease])
        assert await bell.wait(5)
        job = await claim_one(world)
        await ended(world, job, Paused(question=a_question()))
        await world.jobs.answer(job.id, "yes", by="key_1")
        assert await bell.wait(5)
        await ended(world, await claim_one(world), GAVE_UP)
        await world.jobs.retry(job.id)
        assert await bell.wait(5)
        await world.jobs.pause_queue("default")
        await world.jobs.resume_queue("default")
        assert await bell.wait(5)
        assert not await bell.wait(0)


async def test_workers_of_several_queues_are_woken_by_each(world: World) -> None:
    async with world.wakeups.jobs(["default", "exports"]) as bell:
        await world.first_ring(bell)
        for queue in ("exports", "default"):
            await enqueued(world, a_new_job(queue=queue))
            assert await bell.wait(5)


async def test_nobody_is_woken_by_another_queue_by_what_waits_or_by_what_was_rolled_back(
    world: World,
) -> None:
    async with world.wakeups.jobs(["default"]) as bell, world.wakeups.jobs(["exports"]) as other:
        await world.first_ring(bell)
        await world.first_ring(other)
        await enqueued(world, a_new_job(run_at=world.clock.now() + MINUTE))
        with pytest.raises(ZeroDivisionError):
            async with world.transactions.begin():
                await enqueued(world)
                raise ZeroDivisionError

        await enqueued(world, a_new_job(queue="exports"))

        assert await other.wait(5)
        assert not await bell.wait(0)


async def test_workers_are_woken_at_the_commit(world: World) -> None:
    async with world.wakeups.jobs(["default"]) as bell:
        await world.first_ring(bell)
        async with world.transactions.begin():
            await enqueued(world)
            assert not await bell.wait(0)
        assert await bell.wait(5)


# History


async def test_jobs_are_listed_the_newest_first_page_by_page(world: World) -> None:
    new = sorted(await enqueued(world, *(a_new_job() for _ in range(5))), reverse=True)

    first = await world.job_history.page(JobFilter(), before=None, limit=2)
    second = await world.job_history.page(JobFilter(), before=first[-1].id, limit=10)

    assert [view.id for view in (*first, *second)] == new


async def test_jobs_are_found_by_queue_type_and_state(world: World) -> None:
    counts, exports, replays = await enqueued(
        world, a_new_job(), a_new_job(queue="exports", type="export"), a_new_job(type="replay")
    )
    await claim(world, 1, "exports")

    async def found(which: JobFilter) -> list[str]:
        return [view.id for view in await world.job_history.page(which, before=None, limit=10)]

    assert await found(JobFilter(queue="default")) == [replays, counts]
    assert await found(JobFilter(type="replay")) == [replays]
    assert await found(JobFilter(state=JobState.PROCESSING)) == [exports]
    assert await found(JobFilter(queue="default", type="count", state=JobState.PENDING)) == [counts]
    assert await found(JobFilter(queue="default", state=JobState.PROCESSING)) == []


async def test_a_job_that_is_not_there_is_not_found(world: World) -> None:
    with pytest.raises(NotFound) as missing:
        await world.job_history.get(JobId("job_missing"))
    assert (missing.value.kind, missing.value.id) == ("job", "job_missing")


async def test_queues_tell_what_is_due_what_runs_and_how_far_they_lag(world: World) -> None:
    now = world.clock.now()
    await enqueued(
        world,
        a_new_job(run_at=now - MINUTE),
        a_new_job(run_at=now - 2 * MINUTE),
        a_new_job(run_at=now + MINUTE),
        a_new_job(queue="exports"),
        a_new_job(queue="scrapes"),
    )
    await claim(world, 1)
    (done,) = await claim(world, 1, "exports")
    await ended(world, done, Completed())
    await world.jobs.pause_queue("metrics")

    queues = {queue.name: queue for queue in await world.job_history.queues()}

    assert list(queues) == ["default", "metrics", "scrapes"]
    default, metrics, scrapes = queues.values()
    assert (default.due, default.processing, default.lag, default.paused) == (1, 1, MINUTE, False)
    assert (metrics.due, metrics.processing, metrics.lag, metrics.paused) == (0, 0, None, True)
    assert (scrapes.due, scrapes.lag, scrapes.workers) == (1, timedelta(0), 0)


async def test_a_queue_is_listed_for_as_long_as_one_of_its_jobs_has_not_ended(world: World) -> None:
    async def names() -> list[str]:
        return [queue.name for queue in await world.job_history.queues()]

    (job_id,) = await enqueued(world, a_new_job(run_at=world.clock.now() + MINUTE))
    assert await names() == ["default"]
    world.clock.move(MINUTE)
    job = await claim_one(world)
    assert await names() == ["default"]
    await ended(world, job, Paused(question=a_question()))
    assert await names() == ["default"]
    await world.jobs.cancel(job_id)
    assert await names() == []


async def test_queues_count_each_priority_once(world: World) -> None:
    new = [a_new_job(priority=priority) for priority in (*Priority, Priority.URGENT)]
    await enqueued(world, *new)

    (queue,) = await world.job_history.queues()

    assert queue.due == len(new)


async def test_queues_tell_how_many_live_workers_drain_them(world: World) -> None:
    def present(*queues: str) -> WorkerPresence:
        return WorkerPresence(id=ids.worker(), host="a", pid=1, version="1", in_flight=0, queues=queues)

    await world.workers.report(present("default"))
    world.clock.move(LIVE_WITHIN + MOMENT)
    await world.workers.report(present("default", "exports"))
    await world.workers.report(present("exports"))
    await world.workers.report(present())

    queues = await world.job_history.queues()

    assert [(queue.name, queue.workers) for queue in queues] == [("default", 1), ("exports", 2)]


async def test_whoever_only_asks_whether_jobs_wait_need_not_have_all_of_them_counted(world: World) -> None:
    await enqueued(world, a_new_job(), a_new_job(), a_new_job())
    await world.jobs.claim(["default"], limit=1, lease=LEASE)

    (queue,) = await world.job_history.queues(at_most=1)

    assert (queue.due, queue.processing) == (1, 1)


async def test_a_claim_of_no_queue_takes_nothing(world: World) -> None:
    await enqueued(world, a_new_job())

    claimed = await world.jobs.claim([], limit=1, lease=LEASE)

    assert (list(claimed.jobs), claimed.more, claimed.next_due) == ([], False, None)
