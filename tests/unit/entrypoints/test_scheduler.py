"""The scheduler's loop: it looks again in time, outlives a database that is away, and stops at once."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from hymical.adapters.cronsim.calendar import CronSimCalendar
from hymical.application.schedules import EvaluateSchedules, timetables
from hymical.domain.errors import StorageUnavailable
from hymical.domain.jobs import JobCatalog, JobType
from hymical.domain.schedules import Cron, Schedule
from hymical.entrypoints.scheduler import schedules as loop
from hymical.entrypoints.scheduler.schedules import Scheduler
from hymical.ports.jobs import JobFilter
from hymical.ports.schedules import ScheduleLedger, Standings
from tests.builders import ids
from tests.worlds import World, memory_world

PATIENCE = 5
CATALOG = JobCatalog(types={"report": JobType(name="report", queue="default")}, max_retries=3)
YEARLY = Schedule(name="yearly", job_type="report", rule=Cron(expression="0 0 1 1 *"))


class WatchedLedger:
    """A ledger that tells of each look, and is away for as many as a test says; None: it never answers."""

    def __init__(self, ledger: ScheduleLedger) -> None:
        self._ledger = ledger
        self.looks = 0
        self.away: int | None = 0
        self._changed = asyncio.Condition()
        self.register = ledger.register
        self.record = ledger.record
        self.record_by_hand = ledger.record_by_hand
        self.pause = ledger.pause
        self.resume = ledger.resume

    async def standings(self) -> Standings:
        self.looks += 1
        async with self._changed:
            self._changed.notify_all()
        if self.away is None:
            await asyncio.Event().wait()
        if self.away:
            self.away -= 1
            raise StorageUnavailable("OperationalError")
        return await self._ledger.standings()

    async def was_looked_at(self, times: int) -> None:
        async with asyncio.timeout(PATIENCE), self._changed:
            await self._changed.wait_for(lambda: self.looks >= times)


@pytest.fixture
def world() -> World:
    return memory_world()


@pytest.fixture
def ledger(world: World) -> WatchedLedger:
    return WatchedLedger(world.ledger)


@asynccontextmanager
async def running(world: World, ledger: WatchedLedger) -> AsyncIterator[Scheduler]:
    evaluate = EvaluateSchedules(
        timetables=timetables(CATALOG, CronSimCalendar(), [YEARLY]),
        ledger=ledger,
        jobs=world.jobs,
        catalog=CATALOG,
        transactions=world.transactions,
        ids=ids,
    )
    scheduler = Scheduler(evaluate, ids)
    task = asyncio.create_task(scheduler.run())
    try:
        yield scheduler
    finally:
        scheduler.stop()
        await asyncio.wait_for(task, PATIENCE)


async def test_it_looks_again_before_the_next_tick_so_that_a_clock_that_jumps_is_noticed(
    world: World, ledger: WatchedLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "_LONGEST_WAIT", timedelta(0))
    async with running(world, ledger):
        await ledger.was_looked_at(3)
        world.clock.move(timedelta(days=60))
        await ledger.was_looked_at(ledger.looks + 2)

        assert len(await world.job_history.page(JobFilter(), before=None, limit=10)) == 1


async def test_a_database_that_is_away_is_waited_for_and_told_of_once(
    world: World, ledger: WatchedLedger, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(loop, "_SHORTEST_PAUSE", 0.0)
    monkeypatch.setattr(loop, "_LONGEST_WAIT", timedelta(0))
    caplog.set_level("INFO", loop.__name__)
    ledger.away = 3
    async with running(world, ledger):
        await ledger.was_looked_at(8)

    assert [record.message.partition(",")[0] for record in caplog.records] == [
        "the database is away",
        "the database is back",
    ]


async def test_it_stops_at_once_while_it_waits_for_a_tick(world: World, ledger: WatchedLedger) -> None:
    async with running(world, ledger) as scheduler:
        await ledger.was_looked_at(2)
        scheduler.stop()


async def test_it_stops_at_once_while_the_database_does_not_answer(
    world: World, ledger: WatchedLedger
) -> None:
    ledger.away = None
    async with running(world, ledger) as scheduler:
        await ledger.was_looked_at(1)
        scheduler.stop()


async def test_a_fault_of_its_own_ends_it_for_all_to_see(world: World, ledger: WatchedLedger) -> None:
    async def fails() -> Standings:
        raise ZeroDivisionError

    ledger.standings = fails  # type: ignore[method-assign]
    with pytest.raises(ZeroDivisionError):
        async with running(world, ledger):
            pass
