"""Schedules: rules that name times of the calendar in a zone, and the instants at which they are due.

Where the clocks change, a rule that names its times (`30 2 * * *`, or fixed times) runs once for each of them: at
the first instant after the gap for a time that does not exist, and the first time for one that exists twice. A
rule with a star in the minutes or hours (`*/15 * * * *`) follows the clock on the wall through every real minute:
what does not exist is left out, and what exists twice runs twice.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, time, timedelta
from enum import StrEnum
from typing import assert_never
from zoneinfo import ZoneInfo

from hymical.domain.errors import InvalidValue
from hymical.domain.jobs import Json, is_name

PUNCTUAL_WITHIN = timedelta(minutes=1)
"""A tick that was not run for longer was missed; a schedule whose tick it is is overdue."""

MAX_BOUND = 100

WallTimes = Callable[[datetime], datetime | None]
"""The first time that a rule names behind another one, both without a zone; None when there will be none."""

_DAY = timedelta(days=1)
_SECOND = timedelta(seconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cron:
    """An expression of five fields: minute, hour, day of the month, month, day of the week."""

    expression: str

    @property
    def names_its_times(self) -> bool:
        """Whether neither minutes nor hours begin with a star."""
        return not any(part.startswith("*") for part in self.expression.split()[:2])

    def __str__(self) -> str:
        return self.expression


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedTimes:
    """Times of every day. Raises `InvalidValue` for none, or for one with a zone of its own."""

    times: tuple[time, ...]

    def __post_init__(self) -> None:
        if not self.times or any(one.tzinfo is not None for one in self.times):
            raise InvalidValue("times", "must be one time of day or more, without a zone")

    def walls(self, after: datetime) -> datetime:
        on_these_days = (
            datetime.combine(after.date() + days * _DAY, one) for days in (0, 1) for one in sorted(self.times)
        )
        return next(one for one in on_these_days if one > after)

    def __str__(self) -> str:
        return "daily at " + ", ".join(f"{one:%H:%M:%S}".removesuffix(":00") for one in sorted(self.times))


Rule = Cron | FixedTimes


class CatchUp(StrEnum):
    """What becomes of ticks that passed while nobody ran the schedule.

    `SKIP` leaves them, `ONCE` runs the newest for all of them, `ALL` the newest up to the schedule's bound.
    """

    SKIP = "skip"
    ONCE = "once"
    ALL = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A rule that enqueues jobs of one type, with one payload.

    Raises:
        InvalidValue: the name cannot be used, the payload is no JSON, or the bound none that a pass could keep.
    """

    name: str
    job_type: str
    rule: Rule
    zone: str = "UTC"
    catch_up: CatchUp = CatchUp.ONCE
    bound: int = 10
    payload: Json = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not is_name(self.name):
            raise InvalidValue("name", "must be a name of at most 63 of a-z, 0-9, _, . and -")
        if not _is_json(self.payload):
            raise InvalidValue("payload", "must be an object of JSON")
        if not 0 < self.bound <= MAX_BOUND:
            raise InvalidValue("bound", f"must be 1 to {MAX_BOUND}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """The ticks to run now, in order, and the newest that has passed, run or not."""

    ticks: tuple[datetime, ...]
    through: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Timetable:
    """A schedule whose rule and zone were found to be sound. All instants are aware, those it gives in UTC."""

    schedule: Schedule
    walls: WallTimes
    zone: ZoneInfo

    def next(self, after: datetime) -> datetime | None:
        """The first tick behind an instant."""
        match self.schedule.rule:
            case Cron(names_its_times=False):
                return self._next_of_the_clock(after.astimezone(UTC))
            case Cron() | FixedTimes():
                return self._next_named(after.astimezone(UTC))
            case _:
                assert_never(self.schedule.rule)

    def within(self, since: datetime, until: datetime) -> Iterator[datetime]:
        """Ticks in (since, until], in order."""
        tick = self.next(since)
        while tick is not None and tick <= until:
            yield tick
            tick = self.next(tick)

    def due(self, since: datetime, now: datetime) -> Due | None:
        """What to run of the ticks in (since, now]; None when there are none."""
        passed = self._newest(since, now, self.schedule.bound if self.schedule.catch_up is CatchUp.ALL else 1)
        if not passed:
            return None
        missed = now - passed[-1] > PUNCTUAL_WITHIN
        skipped = missed and self.schedule.catch_up is CatchUp.SKIP
        return Due(ticks=() if skipped else passed, through=passed[-1])

    def overdue_since(self, since: datetime, now: datetime) -> datetime | None:
        """The first tick behind `since` that should have been run by now."""
        tick = self.next(since)
        return tick if tick is not None and now - tick > PUNCTUAL_WITHIN else None

    def _newest(self, since: datetime, until: datetime, count: int) -> tuple[datetime, ...]:
        # looking further and further back, for since may be years ago
        reach = timedelta(minutes=count)
        while True:
            start = since if until - since < reach else until - reach
            found = tuple(self.within(start, until))
            if len(found) >= count or start == since:
                return found[-count:]
            reach *= 4

    def _next_named(self, after: datetime) -> datetime | None:
        # what a gap moved lies behind the time that was named, never by as much as a day
        wall = self.walls(_wall(after, self.zone) - _DAY)
        while wall is not None:
            tick = _first_instant(wall, self.zone)
            if tick > after:
                return tick
            wall = self.walls(wall)
        return None

    def _next_of_the_clock(self, after: datetime) -> datetime | None:
        start, wall = after, self.walls(_wall(after, self.zone))
        while wall is not None:
            tick = (wall - _offset(start, self.zone)).replace(tzinfo=UTC)
            change = _next_change(self.zone, start, tick)
            if change is None:
                return tick
            # the clock on the wall goes on from another time, which may be named itself
            start, wall = change, self.walls(_wall(change, self.zone) - _SECOND)
        return None


def _is_json(payload: Json) -> bool:
    try:
        return bool(json.loads(json.dumps(payload, allow_nan=False)) == payload)
    except (TypeError, ValueError):
        return False


def _wall(instant: datetime, zone: ZoneInfo) -> datetime:
    return instant.astimezone(zone).replace(tzinfo=None, fold=0)


def _offset(instant: datetime, zone: ZoneInfo) -> timedelta:
    return instant.astimezone(zone).utcoffset() or timedelta(0)


def _first_instant(wall: datetime, zone: ZoneInfo) -> datetime:
    earlier, later = sorted(wall.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1))
    if _wall(earlier, zone) == wall:
        return earlier
    return _next_change(zone, earlier, later) or later


def _next_change(zone: ZoneInfo, after: datetime, until: datetime) -> datetime | None:
    """The first instant in (after, until] at which the clocks change, to the second."""
    before, start = _offset(after, zone), after
    while start < until:
        end = min(start + _DAY, until)
        if _offset(end, zone) != before:
            return _change_in(zone, before, start, end)
        start = end
    return None


def _change_in(zone: ZoneInfo, before: timedelta, start: datetime, end: datetime) -> datetime:
    """The first whole second in (start, end] whose offset is not `before`, which that of `end` is not."""
    start = start.replace(microsecond=0)
    seconds = -((start - end) // _SECOND)
    low, high = 0, seconds
    while high - low > 1:
        middle = (low + high) // 2
        if _offset(start + middle * _SECOND, zone) == before:
            low = middle
        else:
            high = middle
    return start + high * _SECOND
