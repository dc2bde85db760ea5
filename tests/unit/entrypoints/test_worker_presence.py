"""A worker says that it is there for as long as it is."""

import asyncio
import os
from collections.abc import Sequence

import pytest

import hymical
from hymical.application.workers import LeaveWork, ListWorkers, ReportPresence
from hymical.domain.errors import StorageUnavailable
from hymical.domain.ids import WorkerId
from hymical.entrypoints.worker import presence
from hymical.entrypoints.worker.presence import present
from hymical.ports.workers import WorkerPresence, WorkerRegistry, WorkerView
from tests.worlds import memory_world

PATIENCE = 5
WORKER = WorkerId("wrk_1")


class WatchedRegistry:
    """A registry that tells of each report, and is away for as many calls as a test says."""

    def __init__(self, registry: WorkerRegistry) -> None:
        self._registry = registry
        self.reports: list[WorkerPresence] = []
        self.away = 0
        self._changed = asyncio.Condition()

    async def report(self, presence: WorkerPresence) -> None:
        self.reports.append(presence)
        async with self._changed:
            self._changed.notify_all()
        await self._fail_while_away()
        await self._registry.report(presence)

    async def leave(self, worker_id: WorkerId) -> None:
        await self._fail_while_away()
        await self._registry.leave(worker_id)

    async def all(self) -> Sequence[WorkerView]:
        return await self._registry.all()

    async def has_reported(self, times: int) -> None:
        async with asyncio.timeout(PATIENCE), self._changed:
            await self._changed.wait_for(lambda: len(self.reports) >= times)

    async def _fail_while_away(self) -> None:
        if self.away:
            self.away -= 1
            raise StorageUnavailable


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> WatchedRegistry:
    monkeypatch.setattr(presence, "_EVERY_SECONDS", 0.0)
    return WatchedRegistry(memory_world().workers)


async def test_a_worker_reports_what_it_is_and_has_in_flight(registry: WatchedRegistry) -> None:
    in_flight = iter(range(1, 1_000_000))

    async with present(
        WORKER,
        lambda: next(in_flight),
        queues=["exports"],
        report=ReportPresence(registry=registry),
        leave=LeaveWork(registry=registry),
    ):
        await registry.has_reported(3)
        (view,) = await ListWorkers(registry=registry)()

    assert (view.id, view.pid, view.version, view.live) == (WORKER, os.getpid(), hymical.__version__, True)
    assert view.queues == ("exports",)
    assert view.host
    assert [one.in_flight for one in registry.reports[:3]] == [1, 2, 3]


async def test_a_worker_that_ends_has_left_and_reports_no_more(registry: WatchedRegistry) -> None:
    async with present(
        WORKER, lambda: 0, report=ReportPresence(registry=registry), leave=LeaveWork(registry=registry)
    ):
        await registry.has_reported(1)

    reported = len(registry.reports)
    await asyncio.sleep(0)
    assert len(registry.reports) == reported
    assert not await registry.all()


async def test_a_worker_that_fails_has_left_too(registry: WatchedRegistry) -> None:
    with pytest.raises(ZeroDivisionError):
        async with present(
            WORKER, lambda: 0, report=ReportPresence(registry=registry), leave=LeaveWork(registry=registry)
        ):
            await registry.has_reported(1)
            raise ZeroDivisionError

    assert not await registry.all()


async def test_it_goes_on_reporting_while_the_database_is_away(registry: WatchedRegistry) -> None:
    registry.away = 3

    async with present(
        WORKER, lambda: 0, report=ReportPresence(registry=registry), leave=LeaveWork(registry=registry)
    ):
        await registry.has_reported(5)
        assert [view.id for view in await registry.all()] == [WORKER]


async def test_leaving_while_the_database_is_away_is_no_failure(registry: WatchedRegistry) -> None:
    async with present(
        WORKER, lambda: 0, report=ReportPresence(registry=registry), leave=LeaveWork(registry=registry)
    ):
        await registry.has_reported(2)
        registry.away = 1_000_000
