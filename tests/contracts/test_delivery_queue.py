"""What every `DeliveryQueue` and `DeliveryHistory` promises."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from uuid import uuid4

import pytest

from hymical.domain.deliveries import Delivered, DeliveryState, Failed, Later, Reason, Settlement, fan_out
from hymical.domain.destinations import DestinationChange, DestinationState, Trouble
from hymical.domain.errors import NotFound, NotReplayable, NotResendable
from hymical.domain.ids import DeliveryId, DestinationId, LeaseToken
from hymical.domain.outcomes import AttemptOutcome
from hymical.ports.deliveries import ClaimedDelivery, DeliveryFilter, DeliveryView, Settled, Verdict
from tests.builders import LEASE, a_message, a_submission, an_attempt, ids
from tests.worlds import World


async def claim_one(world: World) -> ClaimedDelivery:
    (claimed,) = await claim(world, 1)
    return claimed


async def claim(world: World, limit: int) -> Sequence[ClaimedDelivery]:
    return (await world.queue.claim(limit=limit, lease=LEASE)).deliveries


async def settle(world: World, *settled: Settled) -> list[Verdict]:
    return list((await world.queue.settle(settled)).verdicts)


def report(
    claimed: ClaimedDelivery,
    settlement: Settlement,
    outcome: AttemptOutcome = AttemptOutcome.SUCCEEDED,
    status: int = 200,
) -> Settled:
    return Settled(
        claimed=claimed,
        settlement=settlement,
        attempt=an_attempt(claimed.lease.number, outcome, status),
    )


async def seen(world: World, claimed: ClaimedDelivery) -> DeliveryView:
    return await world.history.get(claimed.delivery.id)


async def numbers(world: World, claimed: ClaimedDelivery) -> list[tuple[int, AttemptOutcome]]:
    return [
        (attempt.number, attempt.outcome) for attempt in await world.history.attempts(claimed.delivery.id)
    ]


async def test_a_claim_brings_all_that_is_needed_to_send(world: World) -> None:
    destination = await world.destination("https://example.com/one")
    (owed,) = await world.owes(1, destination)

    claimed = await claim_one(world)

    assert claimed.delivery.id == owed.id
    assert claimed.delivery.state is DeliveryState.PROCESSING
    assert claimed.destination == destination
    assert claimed.message.id == owed.message_id
    assert b'"type":"submission.received"' in claimed.message.body
    assert claimed.lease.number == 1
    assert claimed.lease.since == world.clock.now()
    assert claimed.delivery.due_at == world.clock.now() + LEASE
    assert not claimed.lost


async def test_the_body_comes_back_byte_for_byte(world: World) -> None:
    destination = await world.destination()
    submission = a_submission(fields=(("名前", ("Zoë 👋\n",)), ("a", ("2", "1")), ("Z", ("",))))
    message = a_message(submission)
    async with world.transactions.begin():
        await world.stores([submission])
        await world.queue.owe(
            [message], fan_out(message, [destination], now=world.clock.now(), new_id=ids.delivery)
        )

    assert (await claim_one(world)).message.body == message.body
    assert (await world.submissions.get(submission.id)) == submission


async def test_no_two_claims_take_the_same_delivery(world: World) -> None:
    owed = await world.owes(20)

    claims = await asyncio.gather(*(claim(world, 5) for _ in range(8)))
    claims.append(await claim(world, 20))

    taken = [one.delivery.id for claim in claims for one in claim]
    assert sorted(taken) == sorted(delivery.id for delivery in owed)
    assert len({one.lease.token for claim in claims for one in claim}) == 20


async def test_those_come_first_that_waited_longest(world: World) -> None:
    destination = await world.destination()
    first = await world.owes(2, destination)
    world.clock.move(timedelta(seconds=1))
    second = await world.owes(2, destination)

    claimed = await claim(world, 3)

    assert {one.delivery.id for one in claimed} == {first[0].id, first[1].id, second[0].id}


async def test_nothing_is_claimed_before_its_time(world: World) -> None:
    await world.owes()
    claimed = await claim_one(world)
    await world.queue.settle([report(claimed, Later(delay=timedelta(minutes=5)), AttemptOutcome.TIMEOUT)])

    world.clock.move(timedelta(minutes=5) - timedelta(microseconds=1))
    assert not await claim(world, 1)
    world.clock.move(timedelta(microseconds=1))
    assert (await claim_one(world)).lease.number == 2


async def test_a_delivered_one_is_done(world: World) -> None:
    await world.owes()
    claimed = await claim_one(world)

    assert await settle(world, report(claimed, Delivered())) == [Verdict.SETTLED]

    view = await seen(world, claimed)
    assert view.state is DeliveryState.DELIVERED
    assert view.completed_at == world.clock.now()
    assert view.next_attempt_at is None
    assert (view.attempt_count, view.cycle_attempt_count) == (1, 1)
    assert await numbers(world, claimed) == [(1, AttemptOutcome.SUCCEEDED)]
    world.clock.move(timedelta(days=1))
    assert not await claim(world, 1)


async def test_a_retry_waits_by_the_database_s_clock(world: World) -> None:
    await world.owes()
    claimed = await claim_one(world)
    world.clock.move(timedelta(seconds=3))

    await world.queue.settle(
        [report(claimed, Later(delay=timedelta(seconds=5)), AttemptOutcome.HTTP_ERROR, 500)]
    )

    view = await seen(world, claimed)
    assert view.state is DeliveryState.PENDING
    assert view.next_attempt_at == world.clock.now() + timedelta(seconds=5)
    assert (view.attempt_count, view.cycle_attempt_count) == (1, 1)


async def test_a_fault_of_our_own_spends_nothing(world: World) -> None:
    await world.owes()
    claimed = await claim_one(world)

    await world.queue.settle([report(claimed, Later(delay=timedelta(seconds=5), spends=False))])

    view = await seen(world, claimed)
    assert (view.attempt_count, view.cycle_attempt_count) == (1, 0)


async def test_a_failed_one_keeps_its_reason(world: World) -> None:
    await world.owes()
    claimed = await claim_one(world)

    await world.queue.settle(
        [report(claimed, Failed(reason=Reason.REJECTED), AttemptOutcome.HTTP_ERROR, 404)]
    )

    view = await seen(world, claimed)
    assert (view.state, view.failure_reason) == (DeliveryState.FAILED, "rejected")
    assert view.completed_at == world.clock.now()


async def test_an_attempt_is_kept_whole(world: World) -> None:
    await world.owes()
    claimed = await claim_one(world)
    attempt = replace(
        an_attempt(1, AttemptOutcome.HTTP_ERROR, 503),
        error="HTTP 503",
        response_excerpt="être\n\u2028😀",
        truncated=True,
    )

    await world.queue.settle(
        [Settled(claimed=claimed, settlement=Later(delay=timedelta(0)), attempt=attempt)]
    )

    assert await world.history.attempts(claimed.delivery.id) == [attempt]


async def test_many_are_settled_in_one_step_each_in_its_own_way(world: World) -> None:
    await world.owes(4)
    one, two, three, four = await claim(world, 4)

    assert (
        await settle(
            world,
            *(
                report(four, Failed(reason=Reason.EXHAUSTED), AttemptOutcome.TIMEOUT),
                report(one, Delivered()),
                report(three, Later(delay=timedelta(seconds=7)), AttemptOutcome.NETWORK_ERROR),
                Settled(claimed=two, settlement=Failed(reason=Reason.WORKER_LOST), attempt=None),
            ),
        )
        == [Verdict.SETTLED] * 4
    )

    states = [(await seen(world, claimed)).state for claimed in (one, two, three, four)]
    assert states == [
        DeliveryState.DELIVERED,
        DeliveryState.FAILED,
        DeliveryState.PENDING,
        DeliveryState.FAILED,
    ]
    assert await numbers(world, two) == []


# Fences


async def test_an_expired_lease_is_anyone_s_and_the_lost_attempt_is_history(world: World) -> None:
    await world.owes()
    overtaken = await claim_one(world)
    world.clock.move(LEASE - timedelta(microseconds=1))
    assert not await claim(world, 1)
    world.clock.move(timedelta(microseconds=1))

    taken_over = await claim_one(world)

    assert taken_over.lost
    assert taken_over.lease.number == 2
    assert taken_over.lease.token != overtaken.lease.token
    assert taken_over.delivery.lost_in_a_row == 1
    (lost,) = await world.history.attempts(overtaken.delivery.id)
    assert (lost.number, lost.outcome) == (1, AttemptOutcome.LEASE_LOST)
    assert (lost.started_at, lost.duration) == (overtaken.lease.since, None)
    assert (await seen(world, overtaken)).cycle_attempt_count == 0


@pytest.mark.parametrize(
    "late", [Delivered(), Later(delay=timedelta(0)), Failed(reason=Reason.GONE, disables_destination=True)]
)
async def test_a_late_settlement_changes_nothing_but_its_own_attempt(world: World, late: Settlement) -> None:
    await world.owes()
    overtaken = await claim_one(world)
    world.clock.move(LEASE)
    holder = await claim_one(world)
    before = await seen(world, overtaken)

    assert await settle(world, report(overtaken, late, AttemptOutcome.HTTP_ERROR, 410)) == [Verdict.OVERTAKEN]

    assert await seen(world, overtaken) == before
    assert (await world.destinations.get(before.destination_id)).state is DestinationState.ACTIVE
    (completed,) = await world.history.attempts(overtaken.delivery.id)
    assert completed.late
    assert (completed.number, completed.outcome, completed.response_status) == (
        1,
        AttemptOutcome.HTTP_ERROR,
        410,
    )
    assert await settle(world, report(holder, Delivered())) == [Verdict.SETTLED]
    assert [number for number, _ in await numbers(world, holder)] == [1, 2]


async def test_a_late_settlement_after_the_end_changes_nothing(world: World) -> None:
    await world.owes()
    overtaken = await claim_one(world)
    world.clock.move(LEASE)
    holder = await claim_one(world)
    await world.queue.settle([report(holder, Delivered())])
    before = await seen(world, holder)
    world.clock.move(timedelta(minutes=1))

    assert await settle(world, report(overtaken, Failed(reason=Reason.REJECTED))) == [Verdict.OVERTAKEN]

    assert await seen(world, holder) == before


async def test_a_report_within_its_lease_s_token_counts_even_after_its_time(world: World) -> None:
    await world.owes()
    claimed = await claim_one(world)
    world.clock.move(LEASE * 2)

    assert await settle(world, report(claimed, Delivered())) == [Verdict.SETTLED]

    assert (await seen(world, claimed)).state is DeliveryState.DELIVERED


async def test_a_report_is_not_counted_twice(world: World) -> None:
    await world.owes()
    claimed = await claim_one(world)
    await world.queue.settle([report(claimed, Later(delay=timedelta(0)), AttemptOutcome.TIMEOUT)])

    assert await settle(world, report(claimed, Delivered())) == [Verdict.REPEATED]

    view = await seen(world, claimed)
    assert (view.state, view.cycle_attempt_count) == (DeliveryState.PENDING, 1)
    assert await numbers(world, claimed) == [(1, AttemptOutcome.TIMEOUT)]


async def test_a_token_that_was_never_given_ends_nothing(world: World) -> None:
    await world.owes()
    claimed = await claim_one(world)
    forged = replace(claimed, lease=replace(claimed.lease, token=LeaseToken(str(uuid4()))))

    assert await settle(world, Settled(claimed=forged, settlement=Delivered(), attempt=None)) == [
        Verdict.OVERTAKEN
    ]
    await world.queue.release([forged.lease])

    assert (await seen(world, claimed)).state is DeliveryState.PROCESSING


async def test_overtaken_and_holder_in_one_batch_are_told_apart(world: World) -> None:
    await world.owes(2)
    overtaken, other = await claim(world, 2)
    world.clock.move(LEASE)
    (holder,) = await claim(world, 1)
    assert holder.delivery.id == overtaken.delivery.id

    verdicts = await settle(world, report(overtaken, Delivered()), report(other, Delivered()))

    assert verdicts == [Verdict.OVERTAKEN, Verdict.SETTLED]
    assert (await seen(world, overtaken)).state is DeliveryState.PROCESSING
    assert (await seen(world, other)).state is DeliveryState.DELIVERED


async def test_what_is_released_is_due_at_once_and_leaves_a_gap(world: World) -> None:
    await world.owes()
    claimed = await claim_one(world)

    await world.queue.release([claimed.lease])

    view = await seen(world, claimed)
    assert (view.state, view.attempt_count, view.cycle_attempt_count) == (DeliveryState.PENDING, 1, 0)
    again = await claim_one(world)
    assert (again.lease.number, again.lost, again.delivery.lost_in_a_row) == (2, False, 0)
    assert await numbers(world, again) == []


async def test_a_late_release_hands_back_nothing(world: World) -> None:
    await world.owes()
    overtaken = await claim_one(world)
    world.clock.move(LEASE)
    holder = await claim_one(world)

    await world.queue.release([overtaken.lease])

    assert (await seen(world, holder)).state is DeliveryState.PROCESSING
    assert not await claim(world, 1)


async def test_leases_lost_in_a_row_are_counted_until_somebody_reports(world: World) -> None:
    await world.owes()
    for lost in range(4):
        assert (await claim_one(world)).delivery.lost_in_a_row == lost
        world.clock.move(LEASE)
    claimed = await claim_one(world)
    await world.queue.settle([report(claimed, Later(delay=timedelta(0)), AttemptOutcome.TIMEOUT)])

    assert (await claim_one(world)).delivery.lost_in_a_row == 0


async def test_a_late_report_that_is_made_again_is_a_repetition(world: World) -> None:
    await world.owes()
    overtaken = await claim_one(world)
    world.clock.move(LEASE)
    await claim_one(world)
    late = report(overtaken, Delivered())

    assert await settle(world, late) == [Verdict.OVERTAKEN]
    assert await settle(world, late) == [Verdict.REPEATED]


async def test_overtaken_and_holder_of_one_delivery_in_one_batch_are_told_apart(world: World) -> None:
    await world.owes()
    overtaken = await claim_one(world)
    world.clock.move(LEASE)
    holder = await claim_one(world)

    assert await settle(world, report(holder, Delivered()), report(overtaken, Delivered())) == [
        Verdict.SETTLED,
        Verdict.OVERTAKEN,
    ]


async def test_reporting_on_what_is_not_there_is_reported_as_lost(world: World) -> None:
    await world.owes()
    claimed = await claim_one(world)
    lease = replace(claimed.lease, delivery_id=ids.delivery())

    missing = replace(claimed, lease=lease)
    assert await settle(world, report(missing, Delivered())) == [Verdict.OVERTAKEN]
    await world.queue.release([lease])


async def test_those_of_destinations_in_trouble_are_left_alone_where_that_is_asked_for(world: World) -> None:
    calm, troubled = (
        await world.destination("https://example.com/calm"),
        await world.destination("https://example.com/troubled"),
    )
    await world.owes(2, calm)
    await world.owes(1, troubled)
    claimed = sorted(await claim(world, 10), key=lambda one: one.destination.id == troubled.id)
    failing = Trouble(failing_since=world.clock.now(), failures_in_a_row=1)
    await world.health.save({troubled.id: failing})
    overtaken = replace(claimed[1], lease=replace(claimed[1].lease, token=LeaseToken(str(uuid4()))))
    batch = [report(one, Delivered()) for one in (claimed[0], overtaken, claimed[2])]

    report_ = await world.queue.settle(batch, unless_troubled=True)

    assert report_.verdicts == [Verdict.SETTLED, Verdict.OVERTAKEN, Verdict.TROUBLED]
    assert report_.troubled == {troubled.id}
    assert (await seen(world, claimed[2])).state is DeliveryState.PROCESSING
    assert await numbers(world, claimed[2]) == []
    assert await settle(world, batch[2]) == [Verdict.SETTLED]
    assert await numbers(world, claimed[2]) == [(1, AttemptOutcome.SUCCEEDED)]


# Sharing out between destinations


async def test_no_destination_has_more_in_flight_than_it_may(world: World) -> None:
    destination = await world.destination(max_in_flight=3)
    await world.owes(10, destination)

    first = await claim(world, 10)
    assert len(first) == 3
    assert not await claim(world, 10)
    await settle(world, report(first[0], Delivered()), report(first[1], Later(delay=timedelta(hours=1))))

    assert len(await claim(world, 10)) == 2
    world.clock.move(LEASE)
    # leases that ended do not count any more
    assert len(await claim(world, 10)) == 3


async def test_simultaneous_claims_together_stay_within_it(world: World) -> None:
    destination = await world.destination(max_in_flight=5)
    await world.owes(40, destination)

    for _ in range(5):
        claims = await asyncio.gather(*(claim(world, 4) for _ in range(6)))
        taken = [one for claimed in claims for one in claimed]
        assert len(taken) <= 5
        await settle(world, *(report(one, Delivered()) for one in taken))


async def test_a_full_destination_does_not_keep_others_waiting(world: World) -> None:
    hanging = await world.destination("https://example.com/hanging", max_in_flight=2)
    await world.owes(50, hanging)
    await claim(world, 10)
    healthy = await world.destination("https://example.com/healthy")
    (owed,) = await world.owes(1, healthy)

    assert [one.delivery.id for one in await claim(world, 10)] == [owed.id]


async def test_a_claim_is_shared_out_between_destinations(world: World) -> None:
    busy = await world.destination("https://example.com/busy")
    await world.owes(50, busy)
    others = [await world.destination(f"https://example.com/{n}") for n in range(3)]
    for other in others:
        await world.owes(1, other)

    batch = await world.queue.claim(limit=8, lease=LEASE)

    assert {one.destination.id for one in batch.deliveries} == {busy.id, *(other.id for other in others)}
    assert batch.more
    assert len(await claim(world, 8)) == 8


async def test_no_destination_is_left_out_of_a_claim_that_has_one_for_each(world: World) -> None:
    destinations = [await world.destination(f"https://example.com/{n}") for n in range(6)]
    for destination in destinations:
        await world.owes(3, destination)

    batch = await world.queue.claim(limit=10, lease=LEASE)

    assert len(batch.deliveries) == 10
    assert {one.destination.id for one in batch.deliveries} == {one.id for one in destinations}


async def test_every_destination_has_its_turn(world: World) -> None:
    destinations = [await world.destination(f"https://example.com/{n}") for n in range(7)]
    for destination in destinations:
        await world.owes(5, destination)

    seen_first = set[DestinationId]()
    for _ in range(4):
        seen_first |= {one.destination.id for one in await claim(world, 2)}

    assert seen_first == {destination.id for destination in destinations}


async def test_claiming_on_while_there_is_more_takes_everything(world: World) -> None:
    for n in range(5):
        await world.owes(7, await world.destination(f"https://example.com/{n}"))

    taken = 0
    while True:
        batch = await world.queue.claim(limit=3, lease=LEASE)
        taken += len(batch.deliveries)
        if not batch.more:
            break

    assert taken == 35


async def test_nothing_goes_to_a_paused_destination_until_it_is_resumed(world: World) -> None:
    destination = await world.destination()
    await world.destinations.change(destination.id, DestinationChange(state=DestinationState.PAUSED))
    await world.owes(2, destination)

    assert not await claim(world, 10)
    await world.destinations.change(destination.id, DestinationChange(state=DestinationState.ACTIVE))
    assert len(await claim(world, 10)) == 2


async def test_what_was_answered_makes_room_before_it_is_settled_and_only_once(world: World) -> None:
    owed = await world.owes(9, await world.destination(max_in_flight=3))
    held = await claim(world, 10)
    answered = [one.lease for one in held[:2]]

    first = await world.queue.claim(limit=10, lease=LEASE, making_room=answered)
    assert [one.delivery.id for one in first.deliveries] == [one.id for one in owed[3:5]]
    assert not first.more
    assert not (await world.queue.claim(limit=10, lease=LEASE, making_room=answered)).deliveries
    # they hold it as before, and to those who do not know it is full
    assert not await claim(world, 10)
    assert await settle(world, *(report(one, Delivered()) for one in held[:2])) == [Verdict.SETTLED] * 2
    assert not (await world.queue.claim(limit=10, lease=LEASE, making_room=answered)).deliveries


async def test_what_was_answered_makes_no_room_once_its_lease_is_another_s(world: World) -> None:
    destination = await world.destination(max_in_flight=1)
    await world.owes(1, destination)
    late = await claim_one(world)
    world.clock.move(LEASE)
    assert (await claim_one(world)).lost
    await world.owes(1, destination)

    assert not (await world.queue.claim(limit=10, lease=LEASE, making_room=[late.lease])).deliveries


async def test_what_was_answered_makes_no_room_while_a_breaker_lets_one_try(world: World) -> None:
    destination = await world.destination(max_in_flight=3)
    await world.owes(4, destination)
    now = world.clock.now()
    opened = Trouble(failing_since=now, failures_in_a_row=6, openings=1, held_until=now)
    await world.health.save({destination.id: opened})
    tries = await claim_one(world)

    assert not (await world.queue.claim(limit=10, lease=LEASE, making_room=[tries.lease])).deliveries


async def test_an_open_breaker_holds_deliveries_and_lets_one_at_a_time_try(world: World) -> None:
    destination = await world.destination()
    await world.owes(5, destination)
    now = world.clock.now()
    opened = Trouble(
        failing_since=now, failures_in_a_row=5, openings=1, held_until=now + timedelta(seconds=10)
    )
    await world.health.save({destination.id: opened})

    assert not await claim(world, 10)
    world.clock.move(timedelta(seconds=10))
    (probe,) = await claim(world, 10)
    assert not await claim(world, 10)
    report_ = await world.queue.settle([report(probe, Delivered())])
    assert report_.troubled == {destination.id}
    await world.health.save({destination.id: None})
    assert len(await claim(world, 10)) == 4


async def test_what_was_stored_for_a_destination_that_has_gone_is_stranded(world: World) -> None:
    disabled, deleted = (
        await world.destination("https://example.com/1"),
        await world.destination("https://example.com/2"),
    )
    await world.owes(1, disabled)
    await world.owes(1, deleted)
    await world.destinations.change(disabled.id, DestinationChange(state=DestinationState.DISABLED))
    await world.destinations.delete(deleted.id)

    batch = await world.queue.claim(limit=10, lease=LEASE)

    assert not batch.deliveries
    assert dict(batch.stranded) == {
        disabled.id: Reason.DESTINATION_DISABLED,
        deleted.id: Reason.DESTINATION_DELETED,
    }
    for destination_id, reason in batch.stranded:
        await world.queue.withdraw_from(destination_id, reason)
    assert not (await world.queue.claim(limit=10, lease=LEASE)).stranded


# Withdrawal


async def test_withdrawing_from_a_destination_fails_what_is_open_and_nothing_else(world: World) -> None:
    destination, other = (
        await world.destination("https://example.com/1"),
        await world.destination("https://example.com/2"),
    )
    await world.owes(3, destination)
    delivered, held, retried = await claim(world, 3)
    await settle(world, report(delivered, Delivered()), report(retried, Later(delay=timedelta(hours=1))))
    (waiting,) = await world.owes(1, destination)
    (elsewhere,) = await world.owes(1, other)

    await world.queue.withdraw_from(destination.id, Reason.DESTINATION_DISABLED)

    for withdrawn in (held.delivery.id, retried.delivery.id, waiting.id):
        view = await world.history.get(withdrawn)
        assert (view.state, view.failure_reason) == (DeliveryState.FAILED, "destination_disabled")
        assert view.completed_at == world.clock.now()
    assert (await seen(world, delivered)).state is DeliveryState.DELIVERED
    assert (await world.history.get(elsewhere.id)).state is DeliveryState.PENDING


async def test_one_in_flight_that_was_withdrawn_ends_without_being_called_overtaken(world: World) -> None:
    destination = await world.destination()
    await world.owes(1, destination)
    held = await claim_one(world)
    await world.queue.withdraw_from(destination.id, Reason.DESTINATION_DELETED)

    assert await settle(world, report(held, Delivered())) == [Verdict.WITHDRAWN]

    view = await seen(world, held)
    assert (view.state, view.failure_reason) == (DeliveryState.FAILED, "destination_deleted")
    assert await numbers(world, held) == [(1, AttemptOutcome.SUCCEEDED)]


async def test_erasing_a_submission_leaves_no_value_anywhere_and_sends_nothing_more(world: World) -> None:
    (owed,) = await world.owes()
    held = await claim_one(world)
    view = await world.history.get(owed.id)
    assert view.submission_id is not None

    async with world.transactions.begin():
        await world.queue.withdraw_submission(view.submission_id)
        await world.submissions.erase(view.submission_id)
    await settle(world, report(held, Delivered()))

    with pytest.raises(NotFound):
        await world.submissions.get(view.submission_id)
    with pytest.raises(NotFound):
        await world.submissions.erase(view.submission_id)
    erased = await world.history.get(owed.id)
    assert (erased.failure_reason, erased.submission_id) == ("submission_deleted", view.submission_id)
    assert [attempt.response_excerpt for attempt in await world.history.attempts(owed.id)] == [None]
    with pytest.raises(NotReplayable) as refused:
        await world.queue.replay(owed.id)
    assert refused.value.reason == "submission_deleted"
    with pytest.raises(NotResendable):
        await world.queue.resend(owed.id, ids.delivery())
    assert not await claim(world, 1)


async def test_a_late_answer_to_a_delivered_submission_is_not_kept_once_that_is_erased(world: World) -> None:
    (owed,) = await world.owes()
    overtaken = await claim_one(world)
    world.clock.move(LEASE)
    await settle(world, report(await claim_one(world), Delivered()))
    submission_id = (await world.history.get(owed.id)).submission_id
    assert submission_id is not None
    async with world.transactions.begin():
        await world.queue.withdraw_submission(submission_id)
        await world.submissions.erase(submission_id)

    await settle(world, report(overtaken, Delivered()))

    attempts = await world.history.attempts(owed.id)
    assert [(one.number, one.response_excerpt) for one in attempts] == [(1, None), (2, None)]


async def test_what_failed_before_its_submission_was_erased_is_not_replayed_as_an_empty_body(
    world: World,
) -> None:
    claimed = await failed(world)
    submission_id = claimed.message.submission_id
    assert submission_id is not None
    async with world.transactions.begin():
        await world.queue.withdraw_submission(submission_id)
        await world.submissions.erase(submission_id)

    with pytest.raises(NotReplayable) as refused:
        await world.queue.replay(claimed.delivery.id)

    assert (refused.value.state, refused.value.reason) == ("failed", "submission_deleted")
    view = await world.history.get(claimed.delivery.id)
    assert (view.failure_reason, view.void) == ("rejected", "submission_deleted")
    assert not await claim(world, 1)


async def test_what_failed_before_its_destination_was_deleted_is_not_replayed(world: World) -> None:
    claimed = await failed(world)
    await world.destinations.delete(claimed.destination.id)

    with pytest.raises(NotReplayable) as refused:
        await world.queue.replay(claimed.delivery.id)

    assert (refused.value.state, refused.value.reason) == ("failed", "destination_deleted")
    view = await world.history.get(claimed.delivery.id)
    assert (view.failure_reason, view.void) == ("rejected", "destination_deleted")


# Resend


async def test_a_resend_is_a_delivery_of_its_own_with_the_same_message(world: World) -> None:
    await world.owes()
    claimed = await claim_one(world)
    await settle(world, report(claimed, Delivered()))
    new_id = ids.delivery()

    await world.queue.resend(claimed.delivery.id, new_id)

    resent = await claim_one(world)
    assert (resent.delivery.id, resent.lease.number) == (new_id, 1)
    assert (resent.message, resent.destination) == (claimed.message, claimed.destination)
    assert (await seen(world, claimed)).state is DeliveryState.DELIVERED


async def test_what_cannot_be_sent_is_not_resent(world: World) -> None:
    destination = await world.destination()
    (owed,) = await world.owes(1, destination)
    with pytest.raises(NotFound):
        await world.queue.resend(DeliveryId("dlv_missing"), ids.delivery())
    await world.destinations.change(destination.id, DestinationChange(state=DestinationState.DISABLED))
    with pytest.raises(NotResendable):
        await world.queue.resend(owed.id, ids.delivery())


# Replay


async def failed(world: World) -> ClaimedDelivery:
    await world.owes()
    claimed = await claim_one(world)
    await world.queue.settle(
        [report(claimed, Failed(reason=Reason.REJECTED), AttemptOutcome.HTTP_ERROR, 404)]
    )
    return claimed


async def test_a_replay_starts_the_allowance_afresh_and_keeps_the_history(world: World) -> None:
    claimed = await failed(world)
    world.clock.move(timedelta(hours=1))

    await world.queue.replay(claimed.delivery.id)

    view = await seen(world, claimed)
    assert (view.state, view.failure_reason, view.completed_at) == (DeliveryState.PENDING, None, None)
    assert (view.attempt_count, view.cycle_attempt_count) == (1, 0)
    assert view.next_attempt_at == world.clock.now()
    again = await claim_one(world)
    assert (again.delivery.id, again.message.id, again.lease.number) == (
        claimed.delivery.id,
        claimed.message.id,
        2,
    )
    await world.queue.settle([report(again, Delivered())])
    assert await numbers(world, again) == [(1, AttemptOutcome.HTTP_ERROR), (2, AttemptOutcome.SUCCEEDED)]


async def test_of_simultaneous_replays_exactly_one_wins(world: World) -> None:
    claimed = await failed(world)

    answers = await asyncio.gather(
        *(world.queue.replay(claimed.delivery.id) for _ in range(6)), return_exceptions=True
    )

    assert answers.count(None) == 1
    assert all(isinstance(answer, NotReplayable) for answer in answers if answer is not None)


async def test_only_what_failed_is_replayed(world: World) -> None:
    await world.owes()
    claimed = await claim_one(world)

    with pytest.raises(NotReplayable) as refused:
        await world.queue.replay(claimed.delivery.id)
    assert refused.value.state == "processing"
    await world.queue.settle([report(claimed, Delivered())])
    with pytest.raises(NotReplayable) as refused:
        await world.queue.replay(claimed.delivery.id)
    assert refused.value.state == "delivered"
    with pytest.raises(NotFound):
        await world.queue.replay(DeliveryId("dlv_missing"))


# Wake-ups


async def test_workers_are_woken_by_what_is_owed_released_or_replayed(world: World) -> None:
    async with world.wakeups.deliveries() as bell:
        await world.first_ring(bell)
        await world.owes()
        assert await bell.wait(5)
        claimed = await claim_one(world)
        await world.queue.release([claimed.lease])
        assert await bell.wait(5)
        claimed = await claim_one(world)
        await world.queue.settle([report(claimed, Failed(reason=Reason.REJECTED))])
        await world.queue.replay(claimed.delivery.id)
        assert await bell.wait(5)


async def test_what_is_rolled_back_wakes_nobody_and_owes_nothing(world: World) -> None:
    destination = await world.destination()
    submission = a_submission()
    message = a_message(submission)
    owed = fan_out(message, [destination], now=world.clock.now(), new_id=ids.delivery)

    class Broken(Exception):
        pass

    with pytest.raises(Broken):
        async with world.transactions.begin():
            await world.stores([submission])
            await world.queue.owe([message], owed)
            raise Broken

    assert not await claim(world, 1)
    with pytest.raises(NotFound):
        await world.submissions.get(submission.id)
    with pytest.raises(NotFound):
        await world.history.get(owed[0].id)


# History


async def test_deliveries_are_listed_the_newest_first_page_by_page(world: World) -> None:
    owed = await world.owes(5)
    ordered = sorted((delivery.id for delivery in owed), reverse=True)

    first = await world.history.page(DeliveryFilter(), before=None, limit=2)
    second = await world.history.page(DeliveryFilter(), before=first[-1].id, limit=10)

    assert [view.id for view in (*first, *second)] == ordered


async def test_deliveries_are_found_by_form_destination_submission_and_state(world: World) -> None:
    one, two = (
        await world.destination("https://example.com/1"),
        await world.destination("https://example.com/2"),
    )
    (to_one,), (to_two,) = await world.owes(1, one), await world.owes(1, two)
    view = await world.history.get(to_two.id)
    await claim(world, 1)

    async def found(which: DeliveryFilter) -> list[str]:
        return [view.id for view in await world.history.page(which, before=None, limit=10)]

    assert view.form_id is not None
    assert await found(DeliveryFilter(form_id=view.form_id)) == [to_two.id, to_one.id]
    assert await found(DeliveryFilter(destination_id=two.id)) == [to_two.id]
    assert await found(DeliveryFilter(submission_id=view.submission_id)) == [to_two.id]
    assert await found(DeliveryFilter(state=DeliveryState.PROCESSING)) == [to_one.id]
    assert await found(DeliveryFilter(destination_id=two.id, state=DeliveryState.PROCESSING)) == []


async def test_a_delivery_that_is_not_there_is_not_found(world: World) -> None:
    with pytest.raises(NotFound):
        await world.history.get(DeliveryId("dlv_missing"))
    assert await world.history.attempts(DeliveryId("dlv_missing")) == []
