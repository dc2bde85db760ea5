"""How an instant is written wherever it leaves Hymical, and read where it comes in."""

import re
from datetime import UTC, datetime
from functools import lru_cache

_RFC3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)", re.ASCII | re.IGNORECASE)


def rfc3339(instant: datetime) -> str:
    """An aware instant in UTC with microseconds and `Z`, as in RFC 3339: `2026-11-29T12:00:00.000000Z`."""
    # only in UTC are two instants never equal: elsewhere the hour that is repeated in autumn equals the one before
    return _written(instant.astimezone(UTC))


# all that is written of one batch tells the same instant
@lru_cache(maxsize=8)
def _written(in_utc: datetime) -> str:
    return in_utc.isoformat(timespec="microseconds").removesuffix("+00:00") + "Z"


def from_rfc3339(text: str) -> datetime:
    """An instant in UTC, kept to the microsecond.

    Raises `ValueError`, also for times that never are, and for those that are in UTC before the year 1 or after 9999.
    """
    if _RFC3339.fullmatch(text) is None:
        raise ValueError("must be an RFC 3339 instant with an offset, such as 2026-11-29T12:00:00Z")
    instant = datetime.fromisoformat(text.upper())
    try:
        return instant.astimezone(UTC)
    except OverflowError:
        raise ValueError("must be within the years 1 to 9999 in UTC") from None
