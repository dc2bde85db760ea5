"""What a request came to, and the word that history keeps for it."""

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import assert_never


class AttemptOutcome(StrEnum):
    """What an attempt's record says of it."""

    SUCCEEDED = "succeeded"
    HTTP_ERROR = "http_error"
    TIMEOUT = "timeout"
    NETWORK_ERROR = "network_error"
    BLOCKED_TARGET = "blocked_target"
    LEASE_LOST = "lease_lost"


@dataclass(frozen=True, slots=True)
class Accepted:
    """2xx."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """An answer that may be another one later: 5xx, 408, 425, 429."""

    retry_after: timedelta = timedelta(0)


@dataclass(frozen=True, slots=True)
class Rejected:
    """An answer that stays the same however often one asks: any other 4xx, any 3xx."""


@dataclass(frozen=True, slots=True)
class Gone:
    """410: the receiver wants nothing any more."""


@dataclass(frozen=True, slots=True)
class TimedOut:
    """The total deadline passed."""


@dataclass(frozen=True, slots=True)
class Unreachable:
    """No connection, no such name, or one that broke off."""


@dataclass(frozen=True, slots=True)
class Stale:
    """A connection that was kept from an earlier request broke before any byte of an answer.

    The receiver may have read the request, so that asking again is an attempt of its own.
    """


@dataclass(frozen=True, slots=True)
class Blocked:
    """The target may not be called."""


@dataclass(frozen=True, slots=True)
class OwnFault:
    """Something failed on our own side; the receiver had no part in it."""


@dataclass(frozen=True, slots=True)
class LeaseLost:
    """Whoever held the lease was not heard of before it ended."""


Outcome = (
    Accepted | Refused | Rejected | Gone | TimedOut | Unreachable | Stale | Blocked | OwnFault | LeaseLost
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came of sending one request: the outcome, and what is kept of it for people to read.

    `error` and `response_excerpt` are bounded, and free of NUL whatever the receiver sent; `truncated` says that
    the response held more than its excerpt. `remote_address` is
    the one that was connected to.
    """

    outcome: Outcome
    duration: timedelta
    response_status: int | None = None
    error: str | None = None
    response_excerpt: str | None = None
    truncated: bool = False
    remote_address: str | None = None


def judge_status(status: int, retry_after: timedelta = timedelta(0)) -> Outcome:
    """What an HTTP status says about a webhook. Total."""
    match status:
        case _ if 200 <= status < 300:  # noqa: PLR2004
            return Accepted()
        case 410:
            return Gone()
        case 408 | 425 | 429:
            return Refused(retry_after=retry_after)
        case _ if status >= 500:  # noqa: PLR2004
            return Refused(retry_after=retry_after)
        case _:
            return Rejected()


def recorded_outcome(outcome: Outcome) -> AttemptOutcome:
    """The word that an attempt's record uses for an outcome."""
    match outcome:
        case Accepted():
            return AttemptOutcome.SUCCEEDED
        case Refused() | Rejected() | Gone():
            return AttemptOutcome.HTTP_ERROR
        case TimedOut():
            return AttemptOutcome.TIMEOUT
        case Unreachable() | Stale() | OwnFault():
            return AttemptOutcome.NETWORK_ERROR
        case Blocked():
            return AttemptOutcome.BLOCKED_TARGET
        case LeaseLost():
            return AttemptOutcome.LEASE_LOST
        case _:
            assert_never(outcome)
