"""How instants are written."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from hymical.domain.instants import rfc3339


@pytest.mark.parametrize(
    ("instant", "written"),
    [
        (datetime(2026, 11, 29, 12, tzinfo=UTC), "2026-11-29T12:00:00.000000Z"),
        (datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC), "2026-01-02T03:04:05.000006Z"),
        (datetime(2026, 11, 29, 1, tzinfo=timezone(timedelta(hours=2))), "2026-11-28T23:00:00.000000Z"),
    ],
)
def test_an_instant_is_written_in_utc_with_microseconds(instant: datetime, written: str) -> None:
    assert rfc3339(instant) == written
    assert datetime.fromisoformat(written) == instant
