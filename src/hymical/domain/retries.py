"""When to try again."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

LONGEST_RETRY_AFTER = timedelta(hours=24)

_JITTER = 0.2
_FAULT_WAIT = timedelta(seconds=5)
_FAULT_DOUBLINGS = 6
_DIGITS = 9
_FIRST_BACKOFF = timedelta(seconds=10)
_LONGEST_BACKOFF = timedelta(hours=1)
_BACKOFF_STEPS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How often and after which waits a delivery is tried again.

    `waits[k]` follows the attempt that spent the allowance for the (k+1)th time, so that a delivery is sent
    at most `len(waits) + 1` times. Every wait is spread by ±20 %, so that what failed together does not
    return together.
    """

    waits: tuple[timedelta, ...]
    max_lost_in_a_row: int = 5

    def wait_after(self, spent: int, dice: float, *, at_least: timedelta = timedelta(0)) -> timedelta | None:
        """How long to wait once the allowance was spent `spent` times; None when there is none left.

        `dice` is a number in [0, 1). `at_least` is what the receiver asked for; it is never undercut, up to
        24 hours.
        """
        if spent > len(self.waits):
            return None
        return max(spread(self.waits[spent - 1], dice), min(at_least, LONGEST_RETRY_AFTER))


def wait_after_fault(attempts: int, dice: float) -> timedelta:
    """How long to wait after a fault on our own side, which spends nothing.

    It grows with the number of attempts ever made, from 5 seconds to about 5 minutes: such a fault may
    last, and has no allowance that ends it.
    """
    return spread(_FAULT_WAIT * 2 ** min(attempts - 1, _FAULT_DOUBLINGS), dice)


def backoff(retry: int, dice: float) -> timedelta:
    """How long a job waits before its retry number `retry`: 10 s, 40 s, 2 min 40 s, … up to an hour, ±20 %."""
    return spread(min(_FIRST_BACKOFF * 4 ** min(retry - 1, _BACKOFF_STEPS), _LONGEST_BACKOFF), dice)


def spread(wait: timedelta, dice: float) -> timedelta:
    """A wait moved by up to 20 % either way; `dice` in [0, 1) decides."""
    return wait * (1 - _JITTER + 2 * _JITTER * dice)


def parse_retry_after(value: str | None, date: str | None) -> timedelta:
    """What a `Retry-After` header asks for (RFC 9110, 10.2.3); zero when it asks for nothing sensible.

    A date counts from the response's own `Date`, so that the receiver's clock does not have to be right.
    """
    if value is None:
        return timedelta(0)
    value = value.strip()
    if value.isascii() and value.isdigit():
        # cut first: a number of any length may arrive, and a timedelta overflows
        digits = value.lstrip("0")[:_DIGITS] or "0"
        return min(timedelta(seconds=int(digits)), LONGEST_RETRY_AFTER)
    until, since = _http_date(value), _http_date(date)
    if until is None or since is None:
        return timedelta(0)
    return min(max(until - since, timedelta(0)), LONGEST_RETRY_AFTER)


def _http_date(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        parsed = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    return parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)
