"""Deliveries: what a message owes, and the state machine that each goes through.

pending ──claim──▶ processing ──2xx──▶ delivered
   ▲                   │ ├──final answer, or allowance spent──▶ failed ──replay──▶ pending
   └──later (retry)────┘ └──lease expired: claimable again, by anyone
pending, processing ──withdraw──▶ failed
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import assert_never

from hymical.domain.destinations import Destination, DestinationState, Seen
from hymical.domain.errors import NotReplayable
from hymical.domain.ids import DeliveryId, DestinationId, LeaseToken, MessageId
from hymical.domain.leases import Lease
from hymical.domain.messages import Message
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
)
from hymical.domain.retries import RetryPolicy, wait_after_fault


class DeliveryState(StrEnum):
    PENDING = "pending"
    PROCESSING = "processing"
    DELIVERED = "delivered"
    FAILED = "failed"


class Reason(StrEnum):
    """Why a delivery failed."""

    EXHAUSTED = "exhausted"
    REJECTED = "rejected"
    GONE = "gone"
    BLOCKED_TARGET = "blocked_target"
    DESTINATION_DISABLED = "destination_disabled"
    DESTINATION_DELETED = "destination_deleted"
    SUBMISSION_DELETED = "submission_deleted"
    WORKER_LOST = "worker_lost"


WITHDRAWALS = frozenset({Reason.DESTINATION_DISABLED, Reason.DESTINATION_DELETED, Reason.SUBMISSION_DELETED})
"""Why a delivery may be withdrawn before it was settled."""

FOR_GOOD = frozenset({Reason.DESTINATION_DELETED, Reason.SUBMISSION_DELETED})
"""After these there is nothing left to send, or nowhere to send it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """The obligation to bring one message to one destination.

    `attempt_count` numbers every claim ever made and is never set back; `cycle_attempt_count` is what the
    retry allowance is measured against. `due_at` is when anyone may claim it: its next attempt while it is
    pending, the end of the lease while it is processing, None once it ended.
    """

    id: DeliveryId
    message_id: MessageId
    destination_id: DestinationId
    state: DeliveryState
    attempt_count: int = 0
    cycle_attempt_count: int = 0
    lost_in_a_row: int = 0
    due_at: datetime | None
    lease: Lease | None = None
    created_at: datetime
    completed_at: datetime | None = None
    failure_reason: Reason | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """The record of one request. `duration` is None when nobody lived to measure it.

    `late` says that its lease had been lost when its holder reported after all.
    """

    number: int
    started_at: datetime
    duration: timedelta | None
    outcome: AttemptOutcome
    response_status: int | None = None
    error: str | None = None
    response_excerpt: str | None = None
    truncated: bool = False
    remote_address: str | None = None
    late: bool = False


@dataclass(frozen=True, slots=True)
class Delivered:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Later:
    """Pending again, due once `delay` has passed by the database's clock."""

    delay: timedelta
    spends: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    reason: Reason
    disables_destination: bool = False


Settlement = Delivered | Later | Failed
"""How the holder of a lease gives it up."""


def settle(delivery: Delivery, outcome: Outcome, policy: RetryPolicy, dice: float) -> Settlement:
    """The next state of a claimed delivery. Total, pure, and the only place that decides.

    `dice` is a number in [0, 1) that spreads retries. Of a lost lease it says whether whoever claimed next
    may go on (`Later` without delay) or must give up, lest a message that kills its workers loops for ever.
    """
    match outcome:
        case Accepted():
            return Delivered()
        case Refused(retry_after=wait):
            return _later_or_failed(delivery, policy, dice, at_least=wait)
        case TimedOut() | Unreachable():
            return _later_or_failed(delivery, policy, dice)
        case Rejected():
            return Failed(reason=Reason.REJECTED)
        case Gone():
            return Failed(reason=Reason.GONE, disables_destination=True)
        case Blocked():
            return Failed(reason=Reason.BLOCKED_TARGET)
        case Stale():
            return Later(delay=timedelta(0), spends=False)
        case OwnFault():
            return Later(delay=wait_after_fault(delivery.attempt_count, dice), spends=False)
        case LeaseLost():
            if delivery.lost_in_a_row >= policy.max_lost_in_a_row:
                return Failed(reason=Reason.WORKER_LOST)
            return Later(delay=timedelta(0), spends=False)
        case _:
            assert_never(outcome)


def _later_or_failed(
    delivery: Delivery, policy: RetryPolicy, dice: float, *, at_least: timedelta = timedelta(0)
) -> Settlement:
    delay = policy.wait_after(delivery.cycle_attempt_count + 1, dice, at_least=at_least)
    return Failed(reason=Reason.EXHAUSTED) if delay is None else Later(delay=delay)


def showed(attempts: Iterable[tuple[AttemptOutcome, Settlement]]) -> Seen:
    """What attempts made on one destination say of it; a fault on our own side says nothing."""
    succeeded = failed = 0
    gone = False
    for outcome, settlement in attempts:
        if outcome is AttemptOutcome.SUCCEEDED:
            succeeded += 1
        elif spends_allowance(settlement):
            failed += 1
            gone = gone or (isinstance(settlement, Failed) and settlement.disables_destination)
    return Seen(succeeded=succeeded, failed=failed, gone=gone)


def withdraw(delivery: Delivery, reason: Reason) -> Failed | None:
    """The end of a delivery that is no longer wanted; None when it had ended already."""
    match delivery.state:
        case DeliveryState.PENDING | DeliveryState.PROCESSING:
            return Failed(reason=reason)
        case DeliveryState.DELIVERED | DeliveryState.FAILED:
            return None
        case _:
            assert_never(delivery.state)


def fan_out(
    message: Message, destinations: Sequence[Destination], *, now: datetime, new_id: Callable[[], DeliveryId]
) -> tuple[Delivery, ...]:
    """The deliveries that a message owes: one for each destination, whatever its state.

    To a disabled destination it has failed from the start, so that a replay finds it.
    """
    return tuple(owed(message.id, destination, now=now, new_id=new_id()) for destination in destinations)


def owed(message_id: MessageId, destination: Destination, *, now: datetime, new_id: DeliveryId) -> Delivery:
    """The delivery that a message owes to one destination, whatever its state; see `fan_out`."""
    pending = Delivery(
        id=new_id,
        message_id=message_id,
        destination_id=destination.id,
        state=DeliveryState.PENDING,
        due_at=now,
        created_at=now,
    )
    if destination.state is DestinationState.DISABLED:
        return ended(pending, Failed(reason=Reason.DESTINATION_DISABLED), now)
    return pending


def shares(limit: int, lanes: int) -> list[int]:
    """How many of `limit` each of `lanes` destinations may take: `limit` in all, and none goes without.

    There are at most `limit` destinations.
    """
    return [limit // lanes + (lane < limit % lanes) for lane in range(lanes)]


# The transitions themselves. SQL carries out the same ones; the contract suite holds the two together.


def is_due(delivery: Delivery, now: datetime) -> bool:
    return delivery.due_at is not None and delivery.due_at <= now


def claim(delivery: Delivery, *, token: LeaseToken, now: datetime, lease: timedelta) -> Delivery:
    """A due delivery in new hands; when another's lease ended on the way, that counts as one lost."""
    number = delivery.attempt_count + 1
    lost = delivery.state is DeliveryState.PROCESSING
    return replace(
        delivery,
        state=DeliveryState.PROCESSING,
        attempt_count=number,
        lost_in_a_row=delivery.lost_in_a_row + 1 if lost else delivery.lost_in_a_row,
        due_at=now + lease,
        lease=Lease(delivery_id=delivery.id, token=token, number=number, since=now),
    )


def holds(delivery: Delivery, lease: Lease) -> bool:
    """Whether a lease is the live one; a holder that was overtaken must change nothing."""
    return delivery.lease is not None and delivery.lease.token == lease.token


def ended(delivery: Delivery, settlement: Settlement, now: datetime) -> Delivery:
    """A delivery after its holder gave it up by `settlement`."""
    match settlement:
        case Delivered():
            return replace(
                _unleased(delivery),
                state=DeliveryState.DELIVERED,
                cycle_attempt_count=delivery.cycle_attempt_count + 1,
                completed_at=now,
            )
        case Later(delay=delay, spends=spends):
            return replace(
                _unleased(delivery),
                state=DeliveryState.PENDING,
                cycle_attempt_count=delivery.cycle_attempt_count + int(spends),
                due_at=now + delay,
            )
        case Failed(reason=reason):
            return replace(
                _unleased(delivery),
                state=DeliveryState.FAILED,
                cycle_attempt_count=delivery.cycle_attempt_count + int(spends_allowance(settlement)),
                completed_at=now,
                failure_reason=reason,
            )
        case _:
            assert_never(settlement)


def spends_allowance(settlement: Settlement) -> bool:
    """Whether a request was made and counts against the retry allowance."""
    match settlement:
        case Delivered():
            return True
        case Later(spends=spends):
            return spends
        case Failed(reason=reason):
            return reason in {Reason.EXHAUSTED, Reason.REJECTED, Reason.GONE, Reason.BLOCKED_TARGET}
        case _:
            assert_never(settlement)


def released(delivery: Delivery, now: datetime) -> Delivery:
    """Handed back unsent: due at once, its number left as a gap, nothing spent, nothing lost."""
    return replace(delivery, state=DeliveryState.PENDING, due_at=now, lease=None)


def replayed(delivery: Delivery, now: datetime) -> Delivery:
    """A failed delivery that starts afresh; id, history and numbering stay. Raises `NotReplayable`."""
    if delivery.state is not DeliveryState.FAILED:
        raise NotReplayable(delivery.id, delivery.state)
    if delivery.failure_reason in FOR_GOOD:
        raise NotReplayable(delivery.id, delivery.state, delivery.failure_reason)
    return replace(
        delivery,
        state=DeliveryState.PENDING,
        cycle_attempt_count=0,
        lost_in_a_row=0,
        due_at=now,
        completed_at=None,
        failure_reason=None,
    )


def _unleased(delivery: Delivery) -> Delivery:
    return replace(delivery, lost_in_a_row=0, due_at=None, lease=None)
