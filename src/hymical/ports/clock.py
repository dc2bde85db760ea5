"""Time."""

from datetime import datetime
from typing import Protocol


class Clock(Protocol):
    """Where time comes from. Whatever is due is decided by the database's clock, not by this one."""

    def now(self) -> datetime:
        """This machine's time, aware, in UTC: good enough for ids, never for what is due."""
        ...

    def monotonic(self) -> float:
        """Seconds that only go forward, from an arbitrary start."""
        ...

    def pinned(self) -> datetime | None:
        """The instant that timed statements take for now; None lets the database's own clock decide."""
        ...
