"""What jobs that send by the thousand promise: each once, in batches that keep or lose their checkpoint with them."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

import pytest

import hymical.application.bulk as application
from hymical.application.bulk import BackfillDestination, ReplayDeliveries
from hymical.application.forms import EraseSubmission
from hymical.application.jobs import RunJob
from hymical.domain.bulk import FailedDeliveries, PastSubmissions, Step
from hymical.domain.deliveries import Delivered, Delivery, DeliveryState, Failed, Reason
from hymical.domain.destinations import Destination, DestinationChange, DestinationState, Trouble
from hymical.domain.errors import JobLost
from hymical.domain.forms import Submission
from hymical.domain.ids import DeliveryId, FormId, JobId
from hymical.domain.jobs import JobState, Json
from hymical.ports.deliveries import DeliveryFilter, DeliveryView, Settled
from hymical.ports.jobs import JobHandler, JobView, RunnableJob
from tests.builders import (
    LEASE,
    a_message,
    a_new_destination,
    a_new_form,
    a_new_job,
    a_submission,
    an_attempt,
    ids,
)
from tests.worlds import World

SECOND = timedelta(seconds=1)
DAY = timedelta(days=1)
EVERYTHING = FailedDeliveries()


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(application, "BATCH", 3)


@dataclass(frozen=True, slots=True)
class Only:
    """The port `JobHandlers`, with one type."""

    handler: JobHandler

    def find(self, type: str) -> RunnableJob | None:
        return RunnableJob(handler=self.handler, timeout=None)


async def started(world: World) -> JobId:
    (enqueued,) = await world.jobs.enqueue([a_new_job("maintenance", payload={"x": 1})])
    return enqueued.job_id


async def run_once(world: World, handler: JobHandler) -> None:
    """The next run of the one job that there is, settled as a worker does it."""
    claimed = await world.jobs.claim(["maintenance"], limit=1, lease=LEASE)
    (job,) = claimed.jobs
    run = RunJob(
        handlers=Only(handler), queue=world.jobs, progress=world.progress, clock=world.clock, ids=ids
    )
    settled = await run(job, now=claimed.now, claimed_at=world.clock.monotonic())
    if settled is not None:
        await world.jobs.settle([settled])


async def run(world: World, handler: JobHandler) -> JobView:
    """A job of its own, run once."""
    job_id = await started(world)
    await run_once(world, handler)
    return await world.job_history.get(job_id)


def replays(world: World, which: FailedDeliveries = EVERYTHING, *, ask_above: int = 1_000) -> JobHandler:
    use_case = ReplayDeliveries(bulk=world.bulk, transactions=world.transactions, ask_above=ask_above)
    return partial(use_case, which)


def backfill(world: World, which: PastSubmissions, *, ask_above: int = 1_000) -> JobHandler:
    use_case = BackfillDestination(
        bulk=world.bulk,
        queue=world.queue,
        destinations=world.destinations,
        transactions=world.transactions,
        ids=ids,
        ask_above=ask_above,
    )
    return partial(use_case, which)


async def settle_all(world: World, settlement: Failed | Delivered) -> Sequence[Delivery]:
    batch = await world.queue.claim(limit=1_000, lease=LEASE)
    await world.queue.settle(
        [
            Settled(claimed=one, settlement=settlement, attempt=an_attempt(one.lease.number))
            for one in batch.deliveries
        ]
    )
    return [one.delivery for one in batch.deliveries]


async def fails(
    world: World, count: int, destination: Destination | None = None, reason: Reason = Reason.EXHAUSTED
) -> list[DeliveryId]:
    """Deliveries that have failed just now; whoever looks later sees them before."""
    await world.owes(count, destination)
    failed = await settle_all(world, Failed(reason=reason))
    world.clock.move(SECOND)
    return sorted(one.id for one in failed)


async def views(world: World, state: DeliveryState | None = None) -> Sequence[DeliveryView]:
    return await world.history.page(DeliveryFilter(state=state), before=None, limit=1_000)


async def waiting(world: World) -> list[DeliveryId]:
    return sorted(view.id for view in await views(world, DeliveryState.PENDING))


def result(job: JobView) -> Json:
    assert job.state is JobState.COMPLETED, job
    assert job.result is not None
    return job.result


def done(sent: int, skipped: Mapping[str, int] | None = None) -> Json:
    return {"outcome": "done", "sent": sent, "skipped": skipped or {}}


# Replays


async def test_everything_that_failed_is_replayed_batch_by_batch_in_order(world: World) -> None:
    failed = await fails(world, 7)
    job = await run(world, replays(world))

    assert result(job) == done(7)
    assert await waiting(world) == failed
    events = await world.progress.since(job.id, 0)
    assert [recorded.event.message for recorded in events] == [
        {"sent": sent, "skipped": {}} for sent in (3, 6, 7)
    ]
    for view in await views(world):
        assert (view.attempt_count, view.cycle_attempt_count, view.failure_reason) == (1, 0, None)


async def test_what_succeeded_waits_or_came_later_is_left_alone(world: World) -> None:
    destination = await world.destination()
    await world.owes(2, destination)
    await settle_all(world, Delivered())
    before = await fails(world, 1, destination)
    world.clock.move(-SECOND)
    job_id = await started(world)
    late = await fails(world, 1, destination)
    # it began at the instant at which the later one failed
    world.clock.move(-SECOND)
    await world.owes(1, destination)
    untouched = await waiting(world)

    await run_once(world, replays(world, FailedDeliveries(failed_before=world.clock.now() + DAY)))

    assert result(await world.job_history.get(job_id)) == done(0)
    assert await waiting(world) == untouched
    assert {view.id for view in await views(world, DeliveryState.FAILED)} == {*before, *late}


async def test_what_cannot_be_replayed_is_skipped_and_counted_by_its_reason(world: World) -> None:
    kept, disabled, deleted = [await world.destination(f"https://example.com/{n}") for n in range(3)]
    good = await fails(world, 2, kept)
    await fails(world, 2, disabled)
    await fails(world, 3, deleted)
    erased = (await views(world))[-1]
    assert erased.id == good[0]
    assert erased.submission_id is not None
    await world.destinations.change(disabled.id, DestinationChange(state=DestinationState.DISABLED))
    await world.destinations.delete(deleted.id)
    erase = EraseSubmission(
        submissions=world.submissions,
        queue=world.queue,
        exports=world.exports,
        transactions=world.transactions,
    )
    await erase(erased.submission_id)

    job = await run(world, replays(world))

    assert result(job) == done(
        1, {"submission_deleted": 1, "destination_disabled": 2, "destination_deleted": 3}
    )
    assert await waiting(world) == [good[1]]


async def test_only_what_the_filter_names_is_replayed(world: World) -> None:
    await world.forms.add(a_new_form("other"))
    elsewhere = await world.destinations.add(a_new_destination("other"))
    one, two = await world.destination(), await world.destination("https://example.com/2")
    first = await fails(world, 1, one, Reason.REJECTED)
    second = await fails(world, 1, two)
    third = await fails(world, 1, elsewhere)
    submission = (await world.history.get(second[0])).submission_id
    at = world.clock.now()

    async def chosen(which: FailedDeliveries) -> list[DeliveryId]:
        found = await world.bulk.failed(which, before=at, after="", limit=10)
        step = Step(last="", sent=0, skipped={}, more=False)
        with pytest.raises(ZeroDivisionError):
            async with world.transactions.begin():
                step = await world.bulk.replay(which, before=at, after="", limit=10)
                replayed = await waiting(world)
                raise ZeroDivisionError
        assert found.deliveries == step.sent == len(replayed)
        return replayed

    assert await chosen(EVERYTHING) == sorted(first + second + third)
    assert await chosen(FailedDeliveries(form_id=FormId("contact"))) == sorted(first + second)
    assert await chosen(FailedDeliveries(destination_id=two.id)) == second
    assert await chosen(FailedDeliveries(submission_id=submission)) == second
    assert await chosen(FailedDeliveries(reason=Reason.REJECTED)) == first
    assert await chosen(FailedDeliveries(failed_after=at - 3 * SECOND)) == sorted(second + third)
    assert await chosen(FailedDeliveries(form_id=FormId("other"), destination_id=one.id)) == []


async def test_what_is_to_be_sent_is_counted_without_what_cannot_be_and_up_to_a_bound(world: World) -> None:
    kept, disabled = await world.destination(), await world.destination("https://example.com/2")
    await fails(world, 4, kept)
    await fails(world, 2, disabled)
    await world.destinations.change(disabled.id, DestinationChange(state=DestinationState.DISABLED))

    found = await world.bulk.failed(EVERYTHING, before=world.clock.now(), after="", limit=10)
    bounded = await world.bulk.failed(EVERYTHING, before=world.clock.now(), after="", limit=2)

    assert (found.deliveries, found.destinations) == (4, 1)
    assert (bounded.deliveries, bounded.destinations) == (3, 1)


async def test_a_person_is_asked_before_more_than_the_threshold_is_sent(world: World) -> None:
    failed = [
        *await fails(world, 4, await world.destination()),
        *await fails(world, 3, await world.destination("https://example.com/2")),
    ]
    handler = replays(world, ask_above=6)
    job = await run(world, handler)

    assert job.state is JobState.PAUSED
    assert job.question is not None
    assert job.question.text == "Replay 7 deliveries to 2 destinations?"
    assert (job.question.choices, job.answer_by) == (("yes", "no"), None)
    assert await waiting(world) == []

    await world.jobs.answer(job.id, "yes", by="key_1")
    await fails(world, 1)
    await run_once(world, handler)

    assert result(await world.job_history.get(job.id)) == done(7)
    assert await waiting(world) == sorted(failed)


async def test_a_no_ends_it_with_nothing_sent(world: World) -> None:
    await fails(world, 2)
    handler = replays(world, ask_above=1)
    job = await run(world, handler)
    await world.jobs.answer(job.id, "no", by="key_1")
    await run_once(world, handler)

    assert result(await world.job_history.get(job.id)) == {"outcome": "declined", "sent": 0, "skipped": {}}
    assert await waiting(world) == []


async def test_it_waits_while_its_destinations_have_enough_to_do_and_goes_on_where_it_was(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hymical.domain.bulk.MOST_WAITING", 4)
    failed = await fails(world, 8)
    handler = replays(world)
    job = await run(world, handler)

    assert job.state is JobState.PENDING
    assert job.run_at > world.clock.now()
    assert (job.retry_count, job.error) == (0, "its destinations have enough to do")
    assert await waiting(world) == failed[:6]

    await settle_all(world, Delivered())
    world.clock.move(timedelta(minutes=1))
    await run_once(world, handler)

    assert result(await world.job_history.get(job.id)) == done(8)
    assert await waiting(world) == failed[6:]


async def test_what_fails_again_is_not_replayed_by_the_same_job(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hymical.domain.bulk.MOST_WAITING", 2)
    await fails(world, 4)
    handler = replays(world)
    job = await run(world, handler)
    for _ in range(2):
        await settle_all(world, Failed(reason=Reason.EXHAUSTED))
        world.clock.move(timedelta(minutes=1))
        if (await world.job_history.get(job.id)).state is JobState.PENDING:
            await run_once(world, handler)

    assert result(await world.job_history.get(job.id)) == done(4)
    assert [view.attempt_count for view in await views(world)] == [2] * 4


async def test_what_waits_for_a_paused_or_failing_destination_holds_up_nobody(world: World) -> None:
    active, paused, failing = [await world.destination(f"https://example.com/{n}") for n in range(3)]
    for number, destination in enumerate((active, paused, failing), 1):
        await world.owes(number, destination)
    await world.destinations.change(paused.id, DestinationChange(state=DestinationState.PAUSED))
    trouble = Trouble(failing_since=world.clock.now(), failures_in_a_row=5, openings=1)
    await world.health.save({failing.id: trouble})
    whole = partial(world.bulk.waiting, limit=10)

    assert await whole(form_id=None, destination_id=None) == 1
    assert await whole(form_id=FormId("contact"), destination_id=None) == 1
    assert await whole(form_id=FormId("other"), destination_id=None) == 0
    assert await whole(form_id=None, destination_id=active.id) == 1
    assert await whole(form_id=None, destination_id=paused.id) == 0
    await world.owes(5, active)
    assert await world.bulk.waiting(form_id=None, destination_id=None, limit=3) == 4


async def test_a_batch_whose_checkpoint_cannot_be_kept_is_not_replayed(world: World) -> None:
    failed = await fails(world, 4)
    job_id = await started(world)
    (job,) = (await world.jobs.claim(["maintenance"], limit=1, lease=timedelta(0))).jobs
    world.clock.move(SECOND)
    await world.jobs.claim(["maintenance"], limit=1, lease=timedelta(0))

    with pytest.raises(JobLost):
        async with world.transactions.begin():
            await world.bulk.replay(EVERYTHING, before=world.clock.now(), after="", limit=3)
            await world.jobs.save(job.lease, {"after": "x"})
    assert await waiting(world) == []

    world.clock.move(SECOND)
    await run_once(world, replays(world))
    assert result(await world.job_history.get(job_id)) == done(4)
    assert await waiting(world) == failed


async def test_two_at_once_replay_each_delivery_once(world: World) -> None:
    failed = await fails(world, 20)
    at = world.clock.now()

    async def walk() -> int:
        after, sent = "", 0
        while True:
            async with world.transactions.begin():
                step = await world.bulk.replay(EVERYTHING, before=at, after=after, limit=3)
            after, sent = step.last, sent + step.sent
            if not step.more:
                return sent

    assert sum(await asyncio.gather(*(walk() for _ in range(4)))) == 20
    assert await waiting(world) == failed


# Back-fills


async def past(world: World, count: int, *, spam: bool = False, form_id: str = "contact") -> list[Submission]:
    """Submissions from a time when their form had no destination; every other one has kept its message."""
    new = [a_submission(form_id, at=world.clock.now(), is_spam=spam) for _ in range(count)]
    async with world.transactions.begin():
        await world.stores(new)
        await world.queue.owe([a_message(one) for one in new[::2]], [])
    world.clock.move(SECOND)
    return new


async def test_a_new_destination_is_owed_each_past_submission_of_its_form_once(world: World) -> None:
    for form_id in ("contact", "other"):
        await world.forms.add(a_new_form(form_id))
    await past(world, 2, form_id="other")
    old = await past(world, 7)
    await past(world, 2, spam=True)
    destination = await world.destination()
    world.clock.move(DAY)

    job = await run(world, backfill(world, PastSubmissions(destination_id=destination.id)))

    assert result(job) == done(7)
    found = await views(world, DeliveryState.PENDING)
    assert sorted(str(view.submission_id) for view in found) == sorted(one.id for one in old)
    assert {view.destination_id for view in found} == {destination.id}

    again = await run(world, backfill(world, PastSubmissions(destination_id=destination.id)))

    assert result(again) == done(0, {"already_owed": 7})
    assert len(await views(world)) == 7


async def test_a_message_that_others_got_is_sent_as_it_was_and_a_missing_one_is_made(world: World) -> None:
    await world.forms.add(a_new_form())
    kept, made = await past(world, 2)
    message = a_message(kept)
    destination = await world.destination()
    earlier = await world.destination("https://example.com/earlier")
    others = PastSubmissions(destination_id=earlier.id)
    first, _ = await world.bulk.past(others, before=world.clock.now(), after="", limit=2)
    world.clock.move(DAY)

    await run(world, backfill(world, PastSubmissions(destination_id=destination.id)))

    sent = {
        one.message.submission_id: one.message
        for one in (await world.queue.claim(limit=10, lease=LEASE)).deliveries
    }
    assert first.message_id is not None
    assert sent[kept.id].id == first.message_id
    assert sent[kept.id].body == message.body
    assert sent[made.id].body == a_message(made).body


async def test_only_submissions_of_the_time_that_is_asked_for_are_sent(world: World) -> None:
    await world.forms.add(a_new_form())
    instants = []
    for _ in range(4):
        instants.append(world.clock.now())
        await past(world, 1)
    destination = await world.destination()
    world.clock.move(DAY)
    which = PastSubmissions(
        destination_id=destination.id, received_after=instants[1], received_before=instants[3]
    )

    assert result(await run(world, backfill(world, which))) == done(1)


async def test_a_destination_that_gets_new_submissions_already_is_not_owed_those_twice(world: World) -> None:
    await world.forms.add(a_new_form())
    await past(world, 2)
    destination = await world.destination()
    await world.owes(3, destination)
    world.clock.move(DAY)

    job = await run(world, backfill(world, PastSubmissions(destination_id=destination.id)))

    assert result(job) == done(2, {"already_owed": 3})
    assert len(await views(world)) == 5


async def test_a_person_is_asked_before_much_of_the_past_is_sent(world: World) -> None:
    await world.forms.add(a_new_form())
    await past(world, 4)
    destination = await world.destination()
    world.clock.move(DAY)
    handler = backfill(world, PastSubmissions(destination_id=destination.id), ask_above=3)
    job = await run(world, handler)

    assert job.question is not None
    assert job.question.text == "Send 4 past submissions to 1 destination?"
    await world.jobs.answer(job.id, "yes", by="key_1")
    await run_once(world, handler)

    assert result(await world.job_history.get(job.id)) == done(4)


async def test_the_past_of_a_destination_that_was_just_made_waits_until_it_is_complete(world: World) -> None:
    await world.forms.add(a_new_form())
    await past(world, 1)
    destination = await world.destination()
    handler = backfill(world, PastSubmissions(destination_id=destination.id))
    job = await run(world, handler)

    assert (job.state, job.retry_count) == (JobState.PENDING, 0)
    assert await views(world) == []
    world.clock.move(job.run_at - world.clock.now())
    await run_once(world, handler)
    assert result(await world.job_history.get(job.id)) == done(1)


async def test_a_destination_that_is_gone_or_disabled_is_sent_nothing(world: World) -> None:
    await world.forms.add(a_new_form())
    await past(world, 1)
    disabled, gone = await world.destination(), await world.destination("https://example.com/2")
    await world.destinations.change(disabled.id, DestinationChange(state=DestinationState.DISABLED))
    await world.destinations.delete(gone.id)
    world.clock.move(DAY)

    given_up = await run(world, backfill(world, PastSubmissions(destination_id=disabled.id)))
    pointless = await run(world, backfill(world, PastSubmissions(destination_id=gone.id)))

    assert (given_up.state, given_up.failure_reason) == (JobState.FAILED, "gave_up")
    assert result(pointless) == {"gone": f"the destination {gone.id}"}
    assert await views(world) == []


async def test_an_erased_submission_is_not_sent(world: World) -> None:
    await world.forms.add(a_new_form())
    kept, erased = await past(world, 2)
    erase = EraseSubmission(
        submissions=world.submissions,
        queue=world.queue,
        exports=world.exports,
        transactions=world.transactions,
    )
    await erase(erased.id)
    destination = await world.destination()
    world.clock.move(DAY)

    assert result(await run(world, backfill(world, PastSubmissions(destination_id=destination.id)))) == done(
        1
    )
    assert [view.submission_id for view in await views(world)] == [kept.id]
