"""Why a delivery is where it is, and what happens next, in one sentence."""

from dataclasses import dataclass
from datetime import datetime
from typing import assert_never

from hymical.domain.deliveries import DeliveryState, Reason
from hymical.domain.destinations import DestinationState
from hymical.domain.instants import rfc3339


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """What is known of a delivery, of its destination, and of its last attempt (`last_error` in words).

    `destination_held_until` lies ahead; `void` is set once its submission was erased or its destination deleted.
    """

    state: DeliveryState
    attempt_count: int
    next_attempt_at: datetime | None
    failure_reason: Reason | None
    destination_state: DestinationState
    destination_held_until: datetime | None
    last_error: str | None
    void: Reason | None = None


_FAILED = {
    Reason.EXHAUSTED: "Every attempt failed; replay it once the receiver works.",
    Reason.REJECTED: "The receiver refused it for good; replay it once the receiver accepts it.",
    Reason.GONE: "The receiver answered 410, so its destination was disabled; resume that, then replay it.",
    Reason.BLOCKED_TARGET: "Its address may not be called; change the URL or the setting, then replay it.",
    Reason.DESTINATION_DISABLED: "Its destination was disabled; resume the destination, then replay it.",
    Reason.DESTINATION_DELETED: "Its destination was deleted; nothing more happens.",
    Reason.SUBMISSION_DELETED: "Its submission was erased; nothing more happens.",
    Reason.WORKER_LOST: "Its worker was lost five times in a row; look into the workers' logs, then replay it.",
}


def explain(situation: Situation) -> str:
    """One sentence, or two: where it is, and what happens next or what to do. Total."""
    match situation.state:
        case DeliveryState.PENDING:
            return _waiting(situation)
        case DeliveryState.PROCESSING:
            return (
                f"Attempt {situation.attempt_count} is on its way, or about to be;"
                " if its worker is lost, another takes over as the lease ends."
            )
        case DeliveryState.DELIVERED:
            return "The receiver has it; nothing more happens."
        case DeliveryState.FAILED:
            assert situation.failure_reason is not None  # noqa: S101  failed always has one
            return _with_error(_FAILED[situation.void or situation.failure_reason], situation.last_error)
        case _:
            assert_never(situation.state)


def _waiting(situation: Situation) -> str:
    if situation.destination_state is DestinationState.PAUSED:
        return "Its destination is paused; resume the destination to send it."
    held_until = situation.destination_held_until
    if held_until is not None:
        return f"Its destination keeps failing and is left alone until {rfc3339(held_until)}; then one at a time."
    if situation.next_attempt_at is None or situation.last_error is None:
        return "It waits for a free slot, of a worker and of its destination."
    return f"The last attempt failed ({situation.last_error}); the next is at {rfc3339(situation.next_attempt_at)}."


def _with_error(sentence: str, error: str | None) -> str:
    return sentence if error is None else f"{sentence} The last attempt: {error}."
