"""Running schedules: what is due becomes a job, once, however many schedulers run."""

import logging
from collections import UserDict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from hymical.domain.errors import InvalidValue, NotFound
from hymical.domain.ids import JobId
from hymical.domain.jobs import JobCatalog
from hymical.domain.schedules import Cron, Schedule, Timetable
from hymical.ports.ids import Ids
from hymical.ports.jobs import JobHistory, JobQueue, JobView
from hymical.ports.schedules import CronCalendar, ScheduleLedger, Standing, Standings, Tick
from hymical.ports.transactions import Transactions
from hymical.ports.workers import WorkerKind, WorkerRegistry

_log = logging.getLogger(__name__)


class Timetables(UserDict[str, Timetable]):
    """Those of every schedule that this build knows, by name."""


def timetables(catalog: JobCatalog, calendar: CronCalendar, schedules: Iterable[Schedule]) -> Timetables:
    """The timetables of schedules, each of which can be run.

    Raises:
        InvalidValue: a name is used twice, a rule or a zone cannot be read, or there is no job of that type.
    """
    made = Timetables()
    for schedule in schedules:
        try:
            _check(schedule, made, catalog)
            made[schedule.name] = _timetable(schedule, calendar)
        except InvalidValue as error:
            raise InvalidValue(f"schedule {schedule.name!r}:", f"{error.field} {error.rule}") from None
    return made


def _check(schedule: Schedule, others: Collection[str], catalog: JobCatalog) -> None:
    if schedule.name in others:
        raise InvalidValue("name", "is that of another schedule too")
    if schedule.job_type not in catalog.types:
        raise InvalidValue("job", f"{schedule.job_type!r} is no job type that this build knows")


def _timetable(schedule: Schedule, calendar: CronCalendar) -> Timetable:
    rule = schedule.rule
    walls = calendar.walls(rule.expression) if isinstance(rule, Cron) else rule.walls
    try:
        zone = ZoneInfo(schedule.zone)
    # a key that leads nowhere is a KeyError, one that leads elsewhere a ValueError, a folder an OSError
    except (KeyError, ValueError, OSError):
        raise InvalidValue("zone", f"{schedule.zone!r} is no IANA time zone, as Europe/Berlin is") from None
    return Timetable(schedule=schedule, walls=walls, zone=zone)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """What one look at all schedules did, and how long until the next tick; None when there is none to come."""

    enqueued: Sequence[JobId]
    next_due: timedelta | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluateSchedules:
    """Enqueues a job for every tick that is due by the database's clock and was not run before.

    A tick and its job are written in one transaction, so that of any number of schedulers one enqueues it, and
    one that dies in between has enqueued nothing.

    Raises:
        StorageUnavailable: what was enqueued before stays; what is due is found again.
    """

    timetables: Timetables
    ledger: ScheduleLedger
    jobs: JobQueue
    catalog: JobCatalog
    transactions: Transactions
    ids: Ids

    async def __call__(self) -> Pass:
        standings = await self._registered()
        enqueued: list[JobId] = []
        for name, timetable in self.timetables.items():
            standing = standings.of.get(name)
            if standing is not None and standing.paused_at is None:
                enqueued += await self._run_due(timetable, standing.since, standings.now)
        return Pass(enqueued=enqueued, next_due=self._next_due(standings.now))

    async def _registered(self) -> Standings:
        standings = await self.ledger.standings()
        ahead = {name for name, one in standings.of.items() if one.since > standings.now}
        for name in sorted(ahead & self.timetables.keys()):
            _log.warning("schedule %s: the database's clock went back, it goes on from now", name)
        behind = (self.timetables.keys() - standings.of.keys()) | (ahead & self.timetables.keys())
        if behind:
            await self.ledger.register(behind)
            standings = await self.ledger.standings()
        return standings

    async def _run_due(self, timetable: Timetable, since: datetime, now: datetime) -> Sequence[JobId]:
        due = timetable.due(since, now)
        if due is None:
            return []
        schedule = timetable.schedule
        new = {
            tick: self.catalog.job(schedule.job_type, schedule.payload, id=self.ids.job())
            for tick in due.ticks
        }
        async with self.transactions.begin():
            ours = await self.ledger.record(
                schedule.name, {tick: job.id for tick, job in new.items()}, through=due.through
            )
            enqueued = [job for job in new.values() if job.id in ours]
            if enqueued:
                await self.jobs.enqueue(enqueued)
        for tick, job in new.items():
            if job.id in ours:
                _log.info("schedule %s: its tick of %s is job %s", schedule.name, tick.isoformat(), job.id)
        return [job.id for job in enqueued]

    def _next_due(self, now: datetime) -> timedelta | None:
        # of those that are paused too, for they may be resumed by then
        waits = [
            tick - now for timetable in self.timetables.values() if (tick := timetable.next(now)) is not None
        ]
        return min(waits, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunScheduleNow:
    """Enqueues one job of a schedule at once, whether or not it is paused. Raises `NotFound`."""

    timetables: Timetables
    ledger: ScheduleLedger
    jobs: JobQueue
    catalog: JobCatalog
    transactions: Transactions
    ids: Ids

    async def __call__(self, name: str) -> JobId:
        schedule = _known(self.timetables, name).schedule
        job = self.catalog.job(schedule.job_type, schedule.payload, id=self.ids.job())
        async with self.transactions.begin():
            await self.ledger.record_by_hand(name, job.id)
            await self.jobs.enqueue([job])
        return job.id


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseSchedule:
    """Enqueues nothing until it is resumed; may be repeated. Raises `NotFound`."""

    timetables: Timetables
    ledger: ScheduleLedger

    async def __call__(self, name: str) -> None:
        await self.ledger.pause(_known(self.timetables, name).schedule.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeSchedule:
    """Goes on from now; what passed in between is not caught up with. May be repeated. Raises `NotFound`."""

    timetables: Timetables
    ledger: ScheduleLedger

    async def __call__(self, name: str) -> None:
        await self.ledger.resume(_known(self.timetables, name).schedule.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleView:
    """A schedule as people read it.

    `next` is None for one that is paused; `overdue_since` is a tick that nobody ran, though it was due for more
    than a minute. `last` is the newest tick, and `job` what became of it, as long as it is kept. `lag` is how long
    behind its tick the job began, or has waited so far.
    """

    schedule: Schedule
    next: datetime | None
    overdue_since: datetime | None
    paused_at: datetime | None
    last: Tick | None
    job: JobView | None
    lag: timedelta | None

    @property
    def duration(self) -> timedelta | None:
        """How long the job took from its start to its end; None until it has ended."""
        if self.job is None or self.job.started_at is None or self.job.finished_at is None:
            return None
        return self.job.finished_at - self.job.started_at


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulesView:
    """All schedules by name, and how many schedulers are alive to run them."""

    schedules: Sequence[ScheduleView]
    schedulers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ListSchedules:
    """Every schedule that this build knows, with how it does."""

    timetables: Timetables
    ledger: ScheduleLedger
    history: JobHistory
    workers: WorkerRegistry

    async def __call__(self) -> SchedulesView:
        standings, workers = await self.ledger.standings(), await self.workers.all()
        return SchedulesView(
            schedules=[
                await self._view(timetable, standings.of.get(name), standings.now)
                for name, timetable in sorted(self.timetables.items())
            ],
            schedulers=sum(one.live and one.kind is WorkerKind.SCHEDULER for one in workers),
        )

    async def _view(self, timetable: Timetable, standing: Standing | None, now: datetime) -> ScheduleView:
        runs = standing is None or standing.paused_at is None
        last = standing.last if standing else None
        job = await self._job(last)
        return ScheduleView(
            schedule=timetable.schedule,
            next=timetable.next(now) if runs else None,
            overdue_since=timetable.overdue_since(standing.since, now) if standing and runs else None,
            paused_at=standing.paused_at if standing else None,
            last=last,
            job=job,
            lag=_lag(last, job, now) if last else None,
        )

    async def _job(self, tick: Tick | None) -> JobView | None:
        if tick is None:
            return None
        try:
            return await self.history.get(tick.job_id)
        except NotFound:
            return None


def _lag(tick: Tick, job: JobView | None, now: datetime) -> timedelta:
    if job is None:
        return tick.enqueued_at - tick.due_at
    return (job.started_at or job.finished_at or now) - tick.due_at


def _known(known: Timetables, name: str) -> Timetable:
    if name not in known:
        raise NotFound("schedule", name)
    return known[name]
