"""How instants are written."""

from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest

from hymical.domain.instants import from_rfc3339, rfc3339


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


def test_the_hour_that_is_repeated_in_autumn_is_not_written_as_the_one_before() -> None:
    zone = ZoneInfo("Europe/Berlin")
    first = datetime(2026, 10, 25, 0, 30, tzinfo=UTC).astimezone(zone)
    second = datetime(2026, 10, 25, 1, 30, tzinfo=UTC).astimezone(zone)

    assert rfc3339(first) == "2026-10-25T00:30:00.000000Z"
    assert rfc3339(second) == "2026-10-25T01:30:00.000000Z"


@pytest.mark.parametrize("text", ["0001-01-01T00:00:00+10:00", "9999-12-31T23:59:59-10:00"])
def test_an_instant_that_its_offset_moves_out_of_all_years_is_refused_and_not_stored_unreadably(
    text: str,
) -> None:
    with pytest.raises(ValueError, match="years 1 to 9999"):
        from_rfc3339(text)


def test_an_offset_that_databases_do_not_know_is_read_all_the_same() -> None:
    read = from_rfc3339("2026-01-02T00:00:00+23:59")

    assert (read, read.tzinfo) == (datetime(2026, 1, 1, 0, 1, tzinfo=UTC), UTC)
