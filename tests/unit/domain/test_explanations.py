"""Why a delivery is where it is, in words."""

from dataclasses import replace
from datetime import timedelta
from itertools import product

import pytest

from hymical.domain.deliveries import DeliveryState, Reason
from hymical.domain.destinations import DestinationState
from hymical.domain.explanations import Situation, explain
from tests.clocks import START

WAITING = Situation(
    state=DeliveryState.PENDING,
    attempt_count=0,
    next_attempt_at=START,
    failure_reason=None,
    destination_state=DestinationState.ACTIVE,
    destination_held_until=None,
    last_error=None,
)
ERROR = "HTTP 503"
HELD = START + timedelta(minutes=5)


@pytest.mark.parametrize(
    ("situation", "sentence"),
    [
        (WAITING, "It waits for a free slot, of a worker and of its destination."),
        (
            replace(WAITING, attempt_count=1, last_error=ERROR),
            "The last attempt failed (HTTP 503); the next is at 2026-11-29T12:00:00.000000Z.",
        ),
        (
            replace(WAITING, destination_state=DestinationState.PAUSED, destination_held_until=HELD),
            "Its destination is paused; resume the destination to send it.",
        ),
        (
            replace(WAITING, destination_held_until=HELD, last_error=ERROR),
            "Its destination keeps failing and is left alone until 2026-11-29T12:05:00.000000Z; then one at a time.",
        ),
        (
            replace(WAITING, state=DeliveryState.PROCESSING, attempt_count=3, next_attempt_at=None),
            "Attempt 3 is on its way, or about to be; if its worker is lost, another takes over as the lease ends.",
        ),
        (
            replace(WAITING, state=DeliveryState.DELIVERED, next_attempt_at=None),
            "The receiver has it; nothing more happens.",
        ),
    ],
)
def test_where_it_is(situation: Situation, sentence: str) -> None:
    assert explain(situation) == sentence


@pytest.mark.parametrize(
    ("reason", "advice"),
    [
        (Reason.EXHAUSTED, "replay it once the receiver works."),
        (Reason.REJECTED, "replay it once the receiver accepts it."),
        (Reason.GONE, "answered 410, so its destination was disabled; resume that, then replay it."),
        (Reason.BLOCKED_TARGET, "change the URL or the setting, then replay it."),
        (Reason.DESTINATION_DISABLED, "resume the destination, then replay it."),
        (Reason.DESTINATION_DELETED, "nothing more happens."),
        (Reason.SUBMISSION_DELETED, "nothing more happens."),
        (Reason.WORKER_LOST, "look into the workers' logs, then replay it."),
    ],
)
def test_why_it_failed_and_what_to_do(reason: Reason, advice: str) -> None:
    failed = replace(WAITING, state=DeliveryState.FAILED, next_attempt_at=None, failure_reason=reason)

    assert explain(failed).endswith(advice)
    assert explain(replace(failed, last_error=ERROR)) == f"{explain(failed)} The last attempt: HTTP 503."


@pytest.mark.parametrize(
    ("void", "told"),
    [
        (Reason.SUBMISSION_DELETED, "Its submission was erased; nothing more happens."),
        (Reason.DESTINATION_DELETED, "Its destination was deleted; nothing more happens."),
    ],
)
@pytest.mark.parametrize("reason", [Reason.DESTINATION_DISABLED, Reason.EXHAUSTED])
def test_nobody_is_sent_to_replay_what_was_erased_or_deleted_since(
    reason: Reason, void: Reason, told: str
) -> None:
    failed = replace(WAITING, state=DeliveryState.FAILED, next_attempt_at=None, failure_reason=reason)

    assert explain(replace(failed, void=void)) == told


def test_every_situation_is_told_in_whole_sentences() -> None:
    for state, place, held_until, error, reason in product(
        DeliveryState, DestinationState, (None, HELD), (None, ERROR), Reason
    ):
        failed = state is DeliveryState.FAILED
        told = explain(
            Situation(
                state=state,
                attempt_count=1,
                next_attempt_at=START if state is DeliveryState.PENDING else None,
                failure_reason=reason if failed else None,
                destination_state=place,
                destination_held_until=held_until,
                last_error=error,
            )
        )

        assert told[0].isupper()
        assert told.endswith(".")
        assert ".." not in told
        assert not (failed and error) or ERROR in told
