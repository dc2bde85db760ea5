"""A clock that stands still until a test moves it."""

from datetime import UTC, datetime, timedelta

START = datetime(2026, 11, 29, 12, tzinfo=UTC)


class StoppedClock:
    """The port `Clock`; timed statements take its time for now."""

    def __init__(self, at: datetime = START) -> None:
        self._at = at

    def move(self, step: timedelta) -> None:
        self._at += step

    def now(self) -> datetime:
        return self._at

    def monotonic(self) -> float:
        return self._at.timestamp()

    def pinned(self) -> datetime | None:
        return self._at
