"""What schedules need: the reading of cron expressions, and the ledger of their ticks."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from hymical.domain.ids import JobId
from hymical.domain.schedules import WallTimes

KEPT_TICKS = 1_000
"""How many ticks of each schedule its ledger keeps, of those that its watermark covers."""


class CronCalendar(Protocol):
    def walls(self, expression: str) -> WallTimes:
        """The times that an expression names, on a calendar without zones.

        Raises:
            InvalidValue: it is no expression of five fields, or names no time at all.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """An entry of the ledger: what was due, and the job that it enqueued. A run by hand is due at once."""

    due_at: datetime
    job_id: JobId
    enqueued_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How far a schedule has come: every tick up to `since` has been dealt with. `last` is its newest tick."""

    since: datetime
    paused_at: datetime | None
    last: Tick | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Standings:
    """Those of all schedules that were ever registered, by name; `now` is the database's time."""

    now: datetime
    of: Mapping[str, Standing]


class ScheduleLedger(Protocol):
    """What has been run of each schedule. No instant of a schedule is ever recorded twice."""

    async def standings(self) -> Standings: ...

    async def register(self, names: Collection[str]) -> None:
        """Begins with schedules from now on; one whose watermark lies ahead goes back to now.

        A watermark that lies ahead says that the database's clock went back. What has been recorded of the time
        that comes again is still not recorded twice.
        """
        ...

    async def record(
        self, name: str, ticks: Mapping[datetime, JobId], *, through: datetime
    ) -> Collection[JobId]:
        """Writes ticks down and moves the watermark to `through`; gives the jobs that are to be enqueued.

        They are those whose ticks nobody had recorded before, and that no watermark covers; none while the
        schedule is paused. To be called in the transaction that enqueues them.
        """
        ...

    async def record_by_hand(self, name: str, job_id: JobId) -> None:
        """Writes down a run that no rule asked for; the watermark stays. In the transaction that enqueues it."""
        ...

    async def pause(self, name: str) -> None:
        """Nothing is recorded until it is resumed."""
        ...

    async def resume(self, name: str) -> None:
        """Goes on from now: what passed while it was paused is not caught up with."""
        ...
