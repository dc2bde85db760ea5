"""The deliveries that a message owes, and the state machine of a delivery."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hymical.domain.deliveries import (
    FOR_GOOD,
    WITHDRAWALS,
    Delivered,
    Delivery,
    DeliveryState,
    Failed,
    Later,
    Reason,
    Settlement,
    claim,
    ended,
    fan_out,
    holds,
    is_due,
    released,
    replayed,
    settle,
    shares,
    showed,
    spends_allowance,
    withdraw,
)
from hymical.domain.destinations import DestinationState, Seen
from hymical.domain.errors import NotReplayable
from hymical.domain.ids import DeliveryId, LeaseToken
from hymical.domain.leases import Lease
from hymical.domain.outcomes import (
    Accepted,
    AttemptOutcome,
    Blocked,
    Gone,
    LeaseLost,
    Outcome,
    OwnFault,
    Refused,
    Rejected,
    Stale,
    TimedOut,
    Unreachable,
    judge_status,
    recorded_outcome,
)
from hymical.domain.retries import RetryPolicy
from tests.builders import LEASE, POLICY, a_delivery, a_destination, a_message
from tests.clocks import START

SECOND = timedelta(seconds=1)
HOUR = timedelta(hours=1)
DAY = timedelta(hours=24)
NO_JITTER = 0.5
ONE, TWO = LeaseToken("1"), LeaseToken("2")
OPEN = (DeliveryState.PENDING, DeliveryState.PROCESSING)


def claimed(delivery: Delivery | None = None, token: LeaseToken = ONE) -> Delivery:
    return claim(delivery or a_delivery(), token=token, now=START, lease=LEASE)


def lease_of(delivery: Delivery) -> Lease:
    assert delivery.lease is not None
    return delivery.lease


# What a message owes


def numbered() -> Iterator[DeliveryId]:
    number = 0
    while True:
        number += 1
        yield DeliveryId(f"dlv_{number}")


def test_a_message_owes_one_delivery_to_each_destination() -> None:
    message, destinations, ids = a_message(), [a_destination(), a_destination()], numbered()

    owed = fan_out(message, destinations, now=START, new_id=lambda: next(ids))

    assert [delivery.id for delivery in owed] == ["dlv_1", "dlv_2"]
    assert [delivery.destination_id for delivery in owed] == [one.id for one in destinations]
    assert {delivery.message_id for delivery in owed} == {message.id}


def test_a_message_without_destinations_owes_nothing() -> None:
    assert fan_out(a_message(), [], now=START, new_id=lambda: DeliveryId("dlv_1")) == ()


@pytest.mark.parametrize("state", [DestinationState.ACTIVE, DestinationState.PAUSED])
def test_what_an_active_or_a_paused_destination_is_owed_is_pending_and_due(state: DestinationState) -> None:
    message, destination = a_message(), a_destination(state)

    (owed,) = fan_out(message, [destination], now=START, new_id=lambda: DeliveryId("dlv_1"))

    assert owed == Delivery(
        id=DeliveryId("dlv_1"),
        message_id=message.id,
        destination_id=destination.id,
        state=DeliveryState.PENDING,
        due_at=START,
        created_at=START,
    )


def test_what_a_disabled_destination_is_owed_has_failed_so_that_a_replay_finds_it() -> None:
    (owed,) = fan_out(
        a_message(),
        [a_destination(DestinationState.DISABLED)],
        now=START,
        new_id=lambda: DeliveryId("dlv_1"),
    )

    assert (owed.state, owed.failure_reason) == (DeliveryState.FAILED, Reason.DESTINATION_DISABLED)
    assert (owed.due_at, owed.completed_at) == (None, START)
    assert (owed.attempt_count, owed.cycle_attempt_count) == (0, 0)
    assert replayed(owed, START).state is DeliveryState.PENDING


# What an answer means


def judged(status: int) -> Outcome:
    if 200 <= status <= 299:
        return Accepted()
    if status == 410:
        return Gone()
    if status in {408, 425, 429} or status >= 500:
        return Refused(retry_after=HOUR)
    return Rejected()


def test_every_status_is_judged() -> None:
    statuses = range(100, 600)

    assert [judge_status(status, HOUR) for status in statuses] == [judged(status) for status in statuses]


def test_without_a_retry_after_nothing_is_asked_for() -> None:
    assert judge_status(503) == Refused(retry_after=timedelta(0))


@pytest.mark.parametrize(
    ("outcome", "settlement"),
    [
        (Accepted(), Delivered()),
        (Refused(), Later(delay=5 * SECOND)),
        (Refused(retry_after=HOUR), Later(delay=HOUR)),
        (Refused(retry_after=DAY * 2), Later(delay=DAY)),
        (Refused(retry_after=SECOND), Later(delay=5 * SECOND)),
        (TimedOut(), Later(delay=5 * SECOND)),
        (Unreachable(), Later(delay=5 * SECOND)),
        (Rejected(), Failed(reason=Reason.REJECTED)),
        (Gone(), Failed(reason=Reason.GONE, disables_destination=True)),
        (Blocked(), Failed(reason=Reason.BLOCKED_TARGET)),
        (OwnFault(), Later(delay=5 * SECOND, spends=False)),
        (Stale(), Later(delay=timedelta(0), spends=False)),
        (LeaseLost(), Later(delay=timedelta(0), spends=False)),
    ],
)
def test_an_outcome_of_the_first_attempt_leads_to(outcome: Outcome, settlement: Settlement) -> None:
    assert settle(claimed(), outcome, POLICY, NO_JITTER) == settlement


@pytest.mark.parametrize(
    ("outcome", "settlement"),
    [
        (Accepted(), Delivered()),
        (Refused(retry_after=HOUR), Failed(reason=Reason.EXHAUSTED)),
        (TimedOut(), Failed(reason=Reason.EXHAUSTED)),
        (Unreachable(), Failed(reason=Reason.EXHAUSTED)),
        (Rejected(), Failed(reason=Reason.REJECTED)),
        (Gone(), Failed(reason=Reason.GONE, disables_destination=True)),
        (Blocked(), Failed(reason=Reason.BLOCKED_TARGET)),
        (OwnFault(), Later(delay=5 * SECOND, spends=False)),
        (Stale(), Later(delay=timedelta(0), spends=False)),
        (LeaseLost(), Later(delay=timedelta(0), spends=False)),
    ],
)
def test_an_outcome_of_the_last_attempt_leads_to(outcome: Outcome, settlement: Settlement) -> None:
    last = claimed(a_delivery(cycle_attempt_count=len(POLICY.waits)))

    assert settle(last, outcome, POLICY, NO_JITTER) == settlement


@pytest.mark.parametrize("outcome", [Refused(), TimedOut(), Unreachable()])
def test_a_delivery_that_is_never_accepted_is_sent_once_more_than_there_are_waits(outcome: Outcome) -> None:
    delivery, delays = a_delivery(), list[timedelta]()
    while delivery.state in OPEN:
        delivery = claimed(delivery)
        settlement = settle(delivery, outcome, POLICY, NO_JITTER)
        delays += [settlement.delay] if isinstance(settlement, Later) else []
        delivery = ended(delivery, settlement, START)

    assert tuple(delays) == POLICY.waits
    assert (delivery.attempt_count, delivery.cycle_attempt_count) == (3, 3)
    assert (delivery.state, delivery.failure_reason) == (DeliveryState.FAILED, Reason.EXHAUSTED)


def test_an_allowance_that_was_shortened_meanwhile_ends_a_delivery_at_its_next_refusal() -> None:
    far_on = claimed(a_delivery(cycle_attempt_count=7))

    assert settle(far_on, TimedOut(), POLICY, NO_JITTER) == Failed(reason=Reason.EXHAUSTED)


def test_what_the_allowance_is_measured_against_are_the_attempts_since_the_last_replay() -> None:
    often = claimed(replace(a_delivery(), attempt_count=40))

    assert settle(often, TimedOut(), POLICY, NO_JITTER) == Later(delay=5 * SECOND)


@settings(derandomize=True, deadline=None, max_examples=30)
@given(
    dice=st.floats(min_value=0, max_value=1, exclude_max=True),
    asked=st.timedeltas(min_value=timedelta(0), max_value=timedelta(days=3)),
    spent=st.integers(min_value=0, max_value=1),
)
def test_a_retry_keeps_to_the_schedule_and_to_what_was_asked(
    dice: float, asked: timedelta, spent: int
) -> None:
    delivery = claimed(a_delivery(cycle_attempt_count=spent))

    settlement = settle(delivery, Refused(retry_after=asked), POLICY, dice)

    assert isinstance(settlement, Later)
    assert settlement.spends
    assert settlement.delay >= max(POLICY.waits[spent] * 0.8, min(asked, DAY))
    assert settlement.delay <= max(POLICY.waits[spent] * 1.2, min(asked, DAY))


@pytest.mark.parametrize(("dice", "seconds"), [(0.0, 4.0), (0.999_999, 6.0)])
def test_a_fault_of_our_own_waits_a_little_and_is_spread_too(dice: float, seconds: float) -> None:
    settlement = settle(claimed(), OwnFault(), POLICY, dice)

    assert isinstance(settlement, Later)
    assert settlement.delay.total_seconds() == pytest.approx(seconds, abs=0.001)


@pytest.mark.parametrize(
    ("lost", "settlement"),
    [
        (1, Later(delay=timedelta(0), spends=False)),
        (4, Later(delay=timedelta(0), spends=False)),
        (5, Failed(reason=Reason.WORKER_LOST)),
        (6, Failed(reason=Reason.WORKER_LOST)),
    ],
)
def test_five_leases_lost_in_a_row_end_a_delivery(lost: int, settlement: Settlement) -> None:
    assert settle(claimed(a_delivery(lost_in_a_row=lost)), LeaseLost(), POLICY, NO_JITTER) == settlement


def test_how_many_may_be_lost_is_the_policy_s() -> None:
    policy = RetryPolicy(waits=(), max_lost_in_a_row=1)

    assert isinstance(settle(claimed(a_delivery(lost_in_a_row=1)), LeaseLost(), policy, NO_JITTER), Failed)


@pytest.mark.parametrize("outcome", [Accepted(), TimedOut(), OwnFault()])
def test_lost_leases_do_not_matter_to_whoever_reports(outcome: Outcome) -> None:
    often_lost = claimed(a_delivery(lost_in_a_row=5))

    assert settle(often_lost, outcome, POLICY, NO_JITTER) == settle(claimed(), outcome, POLICY, NO_JITTER)


@pytest.mark.parametrize(
    ("outcome", "word"),
    [
        (Accepted(), AttemptOutcome.SUCCEEDED),
        (Refused(), AttemptOutcome.HTTP_ERROR),
        (Rejected(), AttemptOutcome.HTTP_ERROR),
        (Gone(), AttemptOutcome.HTTP_ERROR),
        (TimedOut(), AttemptOutcome.TIMEOUT),
        (Unreachable(), AttemptOutcome.NETWORK_ERROR),
        (OwnFault(), AttemptOutcome.NETWORK_ERROR),
        (Stale(), AttemptOutcome.NETWORK_ERROR),
        (Blocked(), AttemptOutcome.BLOCKED_TARGET),
        (LeaseLost(), AttemptOutcome.LEASE_LOST),
    ],
)
def test_an_attempt_s_record_says(outcome: Outcome, word: AttemptOutcome) -> None:
    assert recorded_outcome(outcome) is word


@pytest.mark.parametrize(
    ("settlement", "spends"),
    [
        (Delivered(), True),
        (Later(delay=SECOND), True),
        (Later(delay=SECOND, spends=False), False),
        (Failed(reason=Reason.EXHAUSTED), True),
        (Failed(reason=Reason.REJECTED), True),
        (Failed(reason=Reason.GONE), True),
        (Failed(reason=Reason.BLOCKED_TARGET), True),
        (Failed(reason=Reason.DESTINATION_DISABLED), False),
        (Failed(reason=Reason.DESTINATION_DELETED), False),
        (Failed(reason=Reason.SUBMISSION_DELETED), False),
        (Failed(reason=Reason.WORKER_LOST), False),
    ],
)
def test_what_spends_the_allowance(settlement: Settlement, spends: bool) -> None:  # noqa: FBT001
    assert spends_allowance(settlement) is spends


SUCCEEDED = (AttemptOutcome.SUCCEEDED, Delivered())
REFUSED = (AttemptOutcome.HTTP_ERROR, Later(delay=SECOND))
FAULT = (AttemptOutcome.NETWORK_ERROR, Later(delay=SECOND, spends=False))
GONE = (AttemptOutcome.HTTP_ERROR, Failed(reason=Reason.GONE, disables_destination=True))


@pytest.mark.parametrize(
    ("attempts", "seen"),
    [
        ((), Seen()),
        ((SUCCEEDED,), Seen(succeeded=1)),
        ((REFUSED, (AttemptOutcome.TIMEOUT, Later(delay=SECOND))), Seen(failed=2)),
        (((AttemptOutcome.HTTP_ERROR, Failed(reason=Reason.EXHAUSTED)),), Seen(failed=1)),
        (((AttemptOutcome.HTTP_ERROR, Failed(reason=Reason.REJECTED)),), Seen(failed=1)),
        (((AttemptOutcome.BLOCKED_TARGET, Failed(reason=Reason.BLOCKED_TARGET)),), Seen(failed=1)),
        ((FAULT, FAULT), Seen()),
        (((AttemptOutcome.LEASE_LOST, Failed(reason=Reason.WORKER_LOST)),), Seen()),
        ((GONE,), Seen(failed=1, gone=True)),
        ((GONE, REFUSED, FAULT, SUCCEEDED), Seen(succeeded=1, failed=2, gone=True)),
    ],
)
def test_what_attempts_show_of_a_destination(
    attempts: tuple[tuple[AttemptOutcome, Settlement], ...], seen: Seen
) -> None:
    assert showed(attempts) == seen


@pytest.mark.parametrize(
    ("limit", "lanes", "each"),
    [(10, 0, []), (10, 1, [10]), (10, 3, [4, 3, 3]), (10, 6, [2, 2, 2, 2, 1, 1]), (3, 3, [1, 1, 1])],
)
def test_what_is_claimed_is_shared_out_and_no_destination_goes_without(
    limit: int, lanes: int, each: list[int]
) -> None:
    assert shares(limit, lanes) == each


@pytest.mark.parametrize("reason", sorted(WITHDRAWALS))
def test_an_open_delivery_can_be_withdrawn(reason: Reason) -> None:
    assert withdraw(a_delivery(), reason) == Failed(reason=reason)
    assert withdraw(claimed(), reason) == Failed(reason=reason)


@pytest.mark.parametrize("settlement", [Delivered(), Failed(reason=Reason.REJECTED)])
def test_one_that_has_ended_cannot_be_withdrawn(settlement: Settlement) -> None:
    assert withdraw(ended(claimed(), settlement, START), Reason.DESTINATION_DELETED) is None


# Transitions


def test_a_delivery_is_due_from_its_time_on() -> None:
    delivery = a_delivery(due_at=START)

    assert not is_due(delivery, START - timedelta(microseconds=1))
    assert is_due(delivery, START)


def test_one_that_has_ended_is_never_due() -> None:
    assert not is_due(ended(claimed(), Delivered(), START), START + DAY * 365)


def test_a_claim_takes_the_next_number_for_the_time_of_its_lease() -> None:
    delivery = claimed()

    assert (delivery.state, delivery.attempt_count) == (DeliveryState.PROCESSING, 1)
    assert delivery.due_at == START + LEASE
    assert delivery.lease == Lease(delivery_id=delivery.id, token=ONE, number=1, since=START)
    assert (delivery.lost_in_a_row, delivery.cycle_attempt_count) == (0, 0)


def test_a_claim_of_another_s_ended_lease_counts_it_as_lost() -> None:
    taken_over = claimed(claimed(), TWO)

    assert (taken_over.attempt_count, taken_over.lost_in_a_row) == (2, 1)
    assert taken_over.cycle_attempt_count == 0
    assert holds(taken_over, lease_of(taken_over))


def test_only_the_last_to_claim_holds_the_lease() -> None:
    first = claimed()
    second = claimed(first, TWO)

    assert holds(first, lease_of(first))
    assert not holds(second, lease_of(first))
    assert not holds(a_delivery(), lease_of(first))
    assert not holds(ended(first, Delivered(), START), lease_of(first))
    assert not holds(released(first, START), lease_of(first))


def test_an_accepted_delivery_is_delivered() -> None:
    delivery = ended(claimed(), Delivered(), START + SECOND)

    assert (delivery.state, delivery.failure_reason) == (DeliveryState.DELIVERED, None)
    assert (delivery.due_at, delivery.lease, delivery.completed_at) == (None, None, START + SECOND)
    assert delivery.cycle_attempt_count == 1


@pytest.mark.parametrize(("spends", "spent"), [(True, 1), (False, 0)])
def test_a_later_one_is_pending_until_its_delay_has_passed(spends: bool, spent: int) -> None:  # noqa: FBT001
    delivery = ended(claimed(), Later(delay=HOUR, spends=spends), START + SECOND)

    assert (delivery.state, delivery.due_at) == (DeliveryState.PENDING, START + SECOND + HOUR)
    assert (delivery.lease, delivery.completed_at) == (None, None)
    assert (delivery.attempt_count, delivery.cycle_attempt_count) == (1, spent)


@pytest.mark.parametrize("reason", Reason)
def test_a_failed_one_keeps_its_reason(reason: Reason) -> None:
    delivery = ended(claimed(), Failed(reason=reason), START + SECOND)

    assert (delivery.state, delivery.failure_reason) == (DeliveryState.FAILED, reason)
    assert (delivery.due_at, delivery.lease, delivery.completed_at) == (None, None, START + SECOND)


@pytest.mark.parametrize("settlement", [Delivered(), Later(delay=SECOND), Failed(reason=Reason.REJECTED)])
def test_a_report_ends_the_row_of_lost_leases(settlement: Settlement) -> None:
    assert ended(claimed(a_delivery(lost_in_a_row=3)), settlement, START).lost_in_a_row == 0


def test_a_released_one_is_due_at_once_with_nothing_spent_and_a_gap_in_the_numbers() -> None:
    delivery = released(claimed(a_delivery(lost_in_a_row=3, cycle_attempt_count=1)), START + SECOND)

    assert (delivery.state, delivery.due_at, delivery.lease) == (
        DeliveryState.PENDING,
        START + SECOND,
        None,
    )
    assert (delivery.lost_in_a_row, delivery.cycle_attempt_count) == (3, 1)
    assert claimed(delivery, TWO).attempt_count == 2


def test_a_replayed_one_starts_afresh_and_keeps_its_numbers() -> None:
    failed = ended(claimed(a_delivery(cycle_attempt_count=2)), Failed(reason=Reason.EXHAUSTED), START)

    delivery = replayed(failed, START + HOUR)

    assert (delivery.state, delivery.due_at) == (DeliveryState.PENDING, START + HOUR)
    assert (delivery.cycle_attempt_count, delivery.lost_in_a_row, delivery.attempt_count) == (0, 0, 1)
    assert (delivery.completed_at, delivery.failure_reason) == (None, None)
    assert (delivery.id, delivery.created_at) == (failed.id, failed.created_at)


@pytest.mark.parametrize(
    "delivery",
    [a_delivery(), claimed(), ended(claimed(), Delivered(), START)],
    ids=["pending", "processing", "delivered"],
)
def test_only_a_failed_one_can_be_replayed(delivery: Delivery) -> None:
    with pytest.raises(NotReplayable) as refusal:
        replayed(delivery, START)
    assert (refusal.value.delivery_id, refusal.value.state) == (delivery.id, delivery.state)


@pytest.mark.parametrize("reason", Reason)
def test_one_that_failed_for_good_cannot_be_replayed(reason: Reason) -> None:
    failed = ended(claimed(), Failed(reason=reason), START)
    if reason not in FOR_GOOD:
        assert replayed(failed, START).state is DeliveryState.PENDING
        return

    with pytest.raises(NotReplayable) as refusal:
        replayed(failed, START)
    assert (refusal.value.state, refusal.value.reason) == (DeliveryState.FAILED, reason)
