"""Many readers of one job: one watch of it, bounded memory, and nobody in anybody's way."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager

import pytest

from hymical.adapters.memory.jobs import MemoryJobHistory, MemoryJobQueue
from hymical.adapters.memory.progress import MemoryProgressBus
from hymical.adapters.memory.store import MemoryStore
from hymical.application.progress import ListEvents, WatchJob
from hymical.domain.errors import StorageUnavailable
from hymical.domain.ids import JobId
from hymical.domain.jobs import Completed, Failed, Job, JobFailure, Json, Settlement
from hymical.domain.progress import ProgressEvent, RecordedEvent, StepStatus
from hymical.entrypoints.api.feeds import KEPT_BYTES, JobFeed, JobFeeds
from hymical.ports.jobs import JobView, SettledJob
from hymical.ports.progress import PAGE
from hymical.ports.wakeups import Bell
from tests.builders import LEASE, a_new_job
from tests.clocks import StoppedClock

Frames = AsyncGenerator[bytes, None]
LONG = 3_600.0


class CountingHistory(MemoryJobHistory):
    """Counts what it is asked, and fails as `faults` says before it answers again."""

    asked = 0

    def __init__(self, store: MemoryStore, clock: StoppedClock) -> None:
        super().__init__(store, clock)
        self.faults: list[Exception] = []

    async def get(self, job_id: JobId) -> JobView:
        self.asked += 1
        if self.faults:
            raise self.faults.pop()
        return await super().get(job_id)


class CountingBus(MemoryProgressBus):
    """Counts what it is asked, and who listens; `left` is set when the last one has stopped listening."""

    asked = 0
    listeners = 0

    def __init__(self, store: MemoryStore, clock: StoppedClock) -> None:
        super().__init__(store, clock)
        self.left = asyncio.Event()

    async def since(self, job_id: JobId, number: int, *, limit: int = PAGE) -> Sequence[RecordedEvent]:
        self.asked += 1
        return await super().since(job_id, number, limit=limit)

    @asynccontextmanager
    async def changes(self, job_id: JobId) -> AsyncIterator[Bell]:
        async with super().changes(job_id) as bell:
            self.listeners += 1
            try:
                yield bell
            finally:
                self.listeners -= 1
                if not self.listeners:
                    self.left.set()


class Desk:
    """A job that is told of, and those who follow it."""

    def __init__(self, *, keep_alive: float = LONG) -> None:
        store, clock = MemoryStore(), StoppedClock()
        self.queue = MemoryJobQueue(store, clock)
        self.history = CountingHistory(store, clock)
        self.bus = CountingBus(store, clock)
        self.feeds = JobFeeds(
            WatchJob(history=self.history, progress=self.bus),
            ListEvents(history=self.history, progress=self.bus),
            keep_alive=keep_alive,
            look_again=0,
        )

    async def begin(self) -> Job:
        await self.queue.enqueue([a_new_job()])
        return await self.claim()

    async def claim(self) -> Job:
        (job,) = (await self.queue.claim(["default"], limit=1, lease=LEASE)).jobs
        return job

    async def tell(self, job: Job, count: int = 1, message: Json | None = None) -> None:
        for _ in range(count):
            event = ProgressEvent(job_id=job.id, step="step", status=StepStatus.PROGRESS, message=message)
            await self.bus.publish(job.lease, [event])

    async def end(self, job: Job, settlement: Settlement | None = None) -> None:
        await self.queue.settle([SettledJob(lease=job.lease, settlement=settlement or Completed())])

    async def follow(self, job: Job, after: int = 0) -> Frames:
        """A reader that has been greeted, and has read nothing else yet."""
        frames = self.feeds.follow(await self.history.get(job.id), after)
        assert (await anext(frames)).startswith(b"retry: ")
        return frames


@pytest.fixture
async def desk() -> Desk:
    return Desk()


def read(chunk: bytes) -> list[str]:
    """The ids of the events in a part of a stream; of the last event its state."""
    found = []
    for block in chunk.decode().strip().split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines())
        found.append(fields.get("id") or json.loads(fields["data"])["state"])
    return found


async def heard(frames: Frames, count: int) -> list[str]:
    found: list[str] = []
    async with asyncio.timeout(5):
        while len(found) < count:
            found += read(await anext(frames))
    return found


async def rest(frames: Frames) -> list[str]:
    async with asyncio.timeout(5), aclosing(frames):
        return [one async for chunk in frames for one in read(chunk)]


def ids(first: int, last: int) -> list[str]:
    return [str(number) for number in range(first, last + 1)]


async def test_many_readers_cost_one_watch_and_no_questions_of_their_own(desk: Desk) -> None:
    job = await desk.begin()
    readers = [await desk.follow(job) for _ in range(300)]
    asked_before = desk.history.asked
    for number in range(1, 11):
        await desk.tell(job)
        assert await asyncio.gather(*(heard(one, 1) for one in readers)) == [[str(number)]] * 300
    await desk.end(job)

    assert await asyncio.gather(*(rest(one) for one in readers)) == [["completed"]] * 300
    # one of how it stands and one of what is new for each time that something was told, and the first look
    assert desk.history.asked - asked_before <= 12
    assert desk.bus.asked <= 12


async def test_a_reader_that_joins_hears_what_was_told_before(desk: Desk) -> None:
    job = await desk.begin()
    await desk.tell(job, 3)
    first = await desk.follow(job)
    assert await heard(first, 3) == ids(1, 3)
    await desk.tell(job, 2)
    assert await heard(first, 2) == ids(4, 5)

    whole, part, nothing = await desk.follow(job), await desk.follow(job, 2), await desk.follow(job, 5)
    await desk.tell(job)
    await desk.end(job)

    assert await rest(whole) == [*ids(1, 6), "completed"]
    assert await rest(part) == [*ids(3, 6), "completed"]
    assert await rest(nothing) == ["6", "completed"]
    assert await rest(first) == ["6", "completed"]
    assert desk.bus.listeners == 0


async def test_one_that_does_not_read_holds_up_nobody_and_what_is_kept_for_it_is_bounded(desk: Desk) -> None:
    job = await desk.begin()
    asleep, awake = await desk.follow(job), await desk.follow(job)
    message = {"text": "x" * (KEPT_BYTES // 10)}
    for number in range(1, 51):
        await desk.tell(job, message=message)
        assert await heard(awake, 1) == [str(number)]
    await desk.end(job)

    assert await rest(awake) == ["completed"]
    assert await rest(asleep) == [*ids(1, 50), "completed"]


async def test_a_feed_keeps_its_newest_events_up_to_its_bound(desk: Desk) -> None:
    job = await desk.begin()
    feed = JobFeed(await desk.history.get(job.id))
    await desk.tell(job, 50, {"text": "x" * (KEPT_BYTES // 10)})
    async with aclosing(WatchJob(history=desk.history, progress=desk.bus)(job.id, after=0)) as watched:
        feed.add(await anext(watched))

    assert feed.last == 50
    assert feed.after(0) is None
    kept = feed.after(feed.last - 5)
    assert kept is not None
    assert len(kept) == 5
    assert feed.after(feed.last - 10) is None


async def test_an_event_that_is_larger_than_the_bound_is_kept_until_the_next(desk: Desk) -> None:
    job = await desk.begin()
    reader = await desk.follow(job)
    for number in (1, 2, 3):
        asked = desk.bus.asked
        await desk.tell(job, message={"text": "x" * 2 * KEPT_BYTES})
        assert await heard(reader, 1) == [str(number)]
        assert desk.bus.asked == asked + 1
    await reader.aclose()


async def test_a_job_is_watched_from_its_first_reader_to_its_last(desk: Desk) -> None:
    job = await desk.begin()
    first, second = await desk.follow(job), await desk.follow(job)
    await desk.tell(job)
    await heard(first, 1)
    assert desk.bus.listeners == 1

    await first.aclose()
    await desk.tell(job)
    assert await heard(second, 2) == ids(1, 2)
    await second.aclose()

    async with asyncio.timeout(5):
        await desk.bus.left.wait()
    assert desk.bus.listeners == 0


async def test_nobody_listens_for_a_job_that_has_ended(desk: Desk) -> None:
    job = await desk.begin()
    await desk.tell(job, 2)
    await desk.end(job)
    assert await rest(await desk.follow(job)) == ["1", "2", "completed"]
    assert await rest(await desk.follow(job, 2)) == ["completed"]
    assert not desk.bus.left.is_set()


async def test_a_failed_job_that_is_retried_is_followed_afresh_while_others_still_hear_how_it_failed(
    desk: Desk,
) -> None:
    job = await desk.begin()
    slow = await desk.follow(job)
    await desk.tell(job)
    await desk.end(job, Failed(reason=JobFailure.GAVE_UP, error="no"))
    async with asyncio.timeout(5):
        await desk.bus.left.wait()
    await desk.queue.retry(job.id)

    again = await desk.follow(job, 1)
    retried = await desk.claim()
    await desk.tell(retried)
    await desk.end(retried)

    assert await rest(again) == ["2", "completed"]
    assert await rest(slow) == ["1", "failed"]


async def test_a_database_that_is_away_for_a_while_costs_no_event(desk: Desk) -> None:
    job = await desk.begin()
    reader = await desk.follow(job)
    await desk.tell(job)
    assert await heard(reader, 1) == ["1"]
    desk.history.faults = [StorageUnavailable(), StorageUnavailable()]
    await desk.tell(job, 2)
    assert await heard(reader, 2) == ["2", "3"]
    assert desk.history.faults == []
    await reader.aclose()


async def test_what_nobody_foresaw_cuts_readers_off_rather_than_leaving_them_waiting(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    job = await desk.begin()
    reader = await desk.follow(job)
    desk.history.faults = [ZeroDivisionError()]
    await desk.tell(job)
    assert await rest(reader) == []
    assert "ZeroDivisionError" in caplog.text


async def test_closing_ends_every_stream_and_those_that_come_later(desk: Desk) -> None:
    job, other = await desk.begin(), await desk.begin()
    async with AsyncExitStack() as stack:
        readers = [await desk.follow(one) for one in (job, job, other)]
        for reader in readers:
            stack.push_async_callback(reader.aclose)
        ends = [asyncio.create_task(rest(one)) for one in readers]
        desk.feeds.close()
        assert await asyncio.gather(*ends) == [[], [], []]
        assert await rest(await desk.follow(job)) == []


async def test_a_silent_stream_is_kept_alive_by_comments() -> None:
    desk = Desk(keep_alive=0)
    job = await desk.begin()
    reader = await desk.follow(job)
    assert await anext(reader) == b": still here\n\n"
    await reader.aclose()
