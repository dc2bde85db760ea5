"""How much one post may hold, and how many may come."""

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import lru_cache

from hymical.domain.errors import InvalidValue

_SECOND = timedelta(seconds=1)
_MOST_REQUESTS = 1_000_000
_LONGEST_WINDOW = timedelta(days=365)
_TIGHTENED = ("max_fields", "max_field_name_length", "max_field_value_length")


@dataclass(frozen=True, slots=True, kw_only=True)
class IntakeLimits:
    """Body in bytes; fields counted as name-value pairs; names and values in characters."""

    max_body_bytes: int = 262_144
    max_fields: int = 100
    max_field_name_length: int = 128
    max_field_value_length: int = 16_384


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimit:
    """`requests` at once, and then one for each part of `window` that is its share; both are positive."""

    requests: int
    window: timedelta
    interval: timedelta = field(init=False, repr=False, compare=False)
    """Between two requests at the steady rate; rounded up, so that the rate is never exceeded."""
    burst: timedelta = field(init=False, repr=False, compare=False)
    """How far ahead of the time a bucket may be spent."""

    def __post_init__(self) -> None:
        # once: it is asked for with every post
        if self.requests > 0:
            object.__setattr__(self, "interval", -(-self.window // self.requests))
            object.__setattr__(self, "burst", self.interval * self.requests)


@dataclass(frozen=True, slots=True, kw_only=True)
class FormLimits:
    """What a form sets for itself; None takes the operator's. Raises `InvalidValue`, naming the limit."""

    max_fields: int | None = None
    max_field_name_length: int | None = None
    max_field_value_length: int | None = None
    rate_limit: RateLimit | None = None

    def __post_init__(self) -> None:
        for name in _TIGHTENED:
            own = getattr(self, name)
            if own is not None and own < 1:
                raise InvalidValue(f"limits.{name}", "must be at least 1")
        rate = self.rate_limit
        if rate is not None and not 1 <= rate.requests <= _MOST_REQUESTS:
            raise InvalidValue("limits.rate_limit.requests", f"must be 1 to {_MOST_REQUESTS:,}")
        if rate is not None and not _SECOND <= rate.window <= _LONGEST_WINDOW:
            raise InvalidValue("limits.rate_limit.window_seconds", "must be 1 to 31,536,000, which is a year")


OPERATORS = FormLimits()
"""Of a form that sets none."""


def check_within(own: FormLimits, operators: IntakeLimits) -> None:
    """Raises `InvalidValue` for what a form asks for beyond what the operator allows, naming the setting."""
    for name in _TIGHTENED:
        wanted, most = getattr(own, name), getattr(operators, name)
        if wanted is not None and wanted > most:
            raise InvalidValue(f"limits.{name}", f"must be at most {most}, as FORMS_{name.upper()} says")


@lru_cache
def tightened(operators: IntakeLimits, own: FormLimits) -> IntakeLimits:
    """What a form's posts are held to: the operator's limits, which may be tighter than when it was made."""
    most = {name: getattr(operators, name) for name in _TIGHTENED}
    return replace(operators, **{name: min(getattr(own, name) or most[name], most[name]) for name in most})


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimits:
    """For each source of posts, and for each form; None does not limit."""

    source: RateLimit | None = None
    form: RateLimit | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What is told about a bucket, to one who has asked it.

    `remaining` would be allowed at once; after `reset` the bucket is full again. `retry_after` is zero for
    one who was allowed; else it is in whole seconds, at least one, and a request is allowed once it is over.
    """

    limit: RateLimit
    allowed: bool
    remaining: int
    reset: timedelta
    retry_after: timedelta


def spend(tat: datetime | None, now: datetime, limit: RateLimit, asked: int) -> tuple[int, datetime]:
    """How many of `asked` requests are allowed now, the first ones, and until when the bucket is spent then.

    The generic cell rate algorithm (ITU-T I.371): `tat`, the theoretical arrival time, is the instant at which
    the bucket is full again; None and all that is past are a full one. What is refused spends nothing.
    """
    spent_until = now if tat is None else max(tat, now)
    allowed = min(asked, max(0, (now + limit.burst - spent_until) // limit.interval))
    return allowed, spent_until + allowed * limit.interval


def standing(tat: datetime, now: datetime, limit: RateLimit, *, allowed: bool) -> Standing:
    """What the last one to ask is told when `spend` has left the bucket at `tat`."""
    remaining, _ = spend(tat, now, limit, limit.requests)
    wait = tat + limit.interval - limit.burst - now
    return Standing(
        limit=limit,
        allowed=allowed,
        remaining=remaining,
        reset=max(tat - now, timedelta(0)),
        retry_after=timedelta(0) if allowed else max(-(-wait // _SECOND), 1) * _SECOND,
    )
