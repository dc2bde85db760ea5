"""How an instant is written wherever it leaves Hymical."""

from datetime import UTC, datetime


def rfc3339(instant: datetime) -> str:
    """An aware instant in UTC with microseconds and `Z`, as in RFC 3339: `2026-11-29T12:00:00.000000Z`."""
    return instant.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
