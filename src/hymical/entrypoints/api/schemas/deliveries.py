"""Deliveries and attempts on the wire."""

from collections.abc import Sequence
from datetime import timedelta

from pydantic import BaseModel, Field

from hymical.domain.deliveries import Attempt, DeliveryState
from hymical.domain.explanations import Situation, explain
from hymical.entrypoints.api.schemas.instants import Instant
from hymical.ports.deliveries import DeliveryView


class AttemptOut(BaseModel):
    number: int
    started_at: Instant
    duration_ms: int | None
    outcome: str = Field(
        description="succeeded, http_error, timeout, network_error, blocked_target or lease_lost"
    )
    response_status: int | None
    error: str | None
    response_excerpt: str | None
    truncated: bool = Field(description="Whether the response held more than its excerpt.")
    remote_address: str | None
    late: bool = Field(description="Whether its lease had been lost when its worker reported after all.")

    @classmethod
    def of(cls, attempt: Attempt) -> "AttemptOut":
        duration = attempt.duration
        return cls(
            number=attempt.number,
            started_at=attempt.started_at,
            duration_ms=None if duration is None else round(duration / timedelta(milliseconds=1)),
            outcome=attempt.outcome,
            response_status=attempt.response_status,
            error=attempt.error,
            response_excerpt=attempt.response_excerpt,
            truncated=attempt.truncated,
            remote_address=attempt.remote_address,
            late=attempt.late,
        )


class DeliveryOut(BaseModel):
    id: str
    message_id: str
    submission_id: str | None
    form_id: str | None
    destination_id: str
    destination_url: str
    state: DeliveryState
    attempt_count: int
    cycle_attempt_count: int
    next_attempt_at: Instant | None
    created_at: Instant
    completed_at: Instant | None
    failure_reason: str | None

    @classmethod
    def of(cls, view: DeliveryView) -> "DeliveryOut":
        return cls(**{name: getattr(view, name) for name in DeliveryOut.model_fields})


class DeliveryWithAttempts(DeliveryOut):
    explanation: str = Field(description="Why it is where it is, and what happens next.")
    attempts: list[AttemptOut]

    @classmethod
    def with_attempts(cls, view: DeliveryView, attempts: Sequence[Attempt]) -> "DeliveryWithAttempts":
        return cls(
            **{name: getattr(view, name) for name in DeliveryOut.model_fields},
            explanation=explain(
                Situation(
                    state=view.state,
                    attempt_count=view.attempt_count,
                    next_attempt_at=view.next_attempt_at,
                    failure_reason=view.failure_reason,
                    destination_state=view.destination_state,
                    destination_held_until=view.destination_held_until,
                    last_error=attempts[-1].error if attempts else None,
                    void=view.void,
                )
            ),
            attempts=[AttemptOut.of(attempt) for attempt in attempts],
        )
