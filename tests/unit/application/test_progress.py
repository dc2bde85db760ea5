"""Watching a job: all of it, in order, whenever it happens, until it has ended."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager

import pytest

from hymical.application.progress import JobNews, ListEvents, WatchJob
from hymical.domain.errors import NotFound
from hymical.domain.ids import JobId
from hymical.domain.jobs import Completed, Job, JobState
from hymical.domain.leases import JobLease
from hymical.domain.progress import ProgressEvent, RecordedEvent, StepStatus
from hymical.ports.jobs import SettledJob
from hymical.ports.progress import PAGE
from hymical.ports.wakeups import Bell
from tests.builders import LEASE, a_new_job, ids
from tests.site import PATIENCE_SECONDS
from tests.worlds import World, memory_world


@pytest.fixture
async def world() -> World:
    return memory_world()


async def begin(world: World) -> Job:
    await world.jobs.enqueue([a_new_job()])
    (job,) = (await world.jobs.claim(["default"], limit=1, lease=LEASE)).jobs
    return job


def events(job: Job, count: int = 1) -> list[ProgressEvent]:
    return [ProgressEvent(job_id=job.id, step="step", status=StepStatus.PROGRESS)] * count


async def end(world: World, job: Job) -> None:
    await world.jobs.settle([SettledJob(lease=job.lease, settlement=Completed())])


async def watched(world: World, job_id: JobId, after: int = 0) -> list[JobNews]:
    watch_job = WatchJob(history=world.job_history, progress=world.progress)
    async with asyncio.timeout(5), aclosing(watch_job(job_id, after=after)) as told:
        return [news async for news in told]


def numbers(told: Sequence[JobNews]) -> list[int]:
    return [event.number for news in told for event in news.events]


async def test_what_is_more_than_a_page_is_told_page_by_page(world: World) -> None:
    job = await begin(world)
    await world.progress.publish(job.lease, events(job, 2 * PAGE + 5))
    await end(world, job)

    told = await watched(world, job.id)

    assert numbers(told) == list(range(1, 2 * PAGE + 6))
    assert [len(news.events) for news in told] == [PAGE, PAGE, 5]
    assert numbers(await watched(world, job.id, after=2 * PAGE)) == [2_001, 2_002, 2_003, 2_004, 2_005]


async def test_a_job_that_tells_nothing_is_told_of_all_the_same(world: World) -> None:
    job = await begin(world)
    watching = asyncio.create_task(watched(world, job.id))
    await asyncio.sleep(0)
    await end(world, job)
    told = await watching
    assert [news.job.state for news in told][-1] is JobState.COMPLETED
    assert numbers(told) == []


class PatientBell(Bell):
    """Is waited for until it rings: nobody looks again by himself."""

    def __init__(self, bell: Bell) -> None:
        super().__init__()
        self._bell = bell

    async def wait(self, seconds: float) -> bool:
        return await self._bell.wait(PATIENCE_SECONDS)


class TellingBus:
    """Something more is told whenever somebody has just looked, three times; then the job ends."""

    def __init__(self, world: World, job: Job) -> None:
        self._world, self._job, self._left = world, job, 3

    async def publish(self, lease: JobLease, events: Sequence[ProgressEvent]) -> None:
        await self._world.progress.publish(lease, events)

    async def since(self, job_id: JobId, number: int, *, limit: int = PAGE) -> Sequence[RecordedEvent]:
        found = await self._world.progress.since(job_id, number, limit=limit)
        if self._left > 0:
            await self.publish(self._job.lease, events(self._job))
        elif self._left == 0:
            await end(self._world, self._job)
        self._left -= 1
        return found

    @asynccontextmanager
    async def changes(self, job_id: JobId) -> AsyncIterator[Bell]:
        async with self._world.progress.changes(job_id) as bell:
            yield PatientBell(bell)


async def test_what_is_told_between_a_look_and_the_wait_for_news_is_not_missed(world: World) -> None:
    job = await begin(world)
    await world.progress.publish(job.lease, events(job))
    bus = TellingBus(world, job)
    watch_job = WatchJob(history=world.job_history, progress=bus)
    async with asyncio.timeout(5), aclosing(watch_job(job.id, after=0)) as told:
        news = [one async for one in told]
    assert numbers(news) == [1, 2, 3, 4]
    assert news[-1].job.state is JobState.COMPLETED


async def test_a_job_that_is_not_there_is_not_found(world: World) -> None:
    with pytest.raises(NotFound):
        await watched(world, ids.job())
    with pytest.raises(NotFound):
        await ListEvents(history=world.job_history, progress=world.progress)(ids.job(), after=0, limit=1)
