"""The loop that claims, runs and settles jobs, with handlers that a test holds up as it likes."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from hymical.application.jobs import CheckJobs, ClaimJobs, ReleaseJobs, RenewJobs, RunJob, SettleJobs
from hymical.domain.errors import StorageUnavailable
from hymical.domain.ids import JobId
from hymical.domain.jobs import (
    MAX_LOST_IN_A_ROW,
    Ending,
    Finished,
    JobFailure,
    JobState,
    Json,
    NewJob,
)
from hymical.domain.leases import JobLease
from hymical.entrypoints.worker import jobs as worker_module
from hymical.entrypoints.worker.jobs import JobPace, JobWorker
from hymical.ports.jobs import (
    ClaimedJobs,
    Enqueued,
    JobContext,
    JobQueue,
    JobVerdict,
    RunnableJob,
    SettledJob,
)
from hymical.ports.wakeups import Bell
from tests.builders import LEASE, a_new_job
from tests.signals import PATIENCE, Signal, SteadyIds
from tests.worlds import World, memory_world

HOUR = timedelta(hours=1)


class ControlledHandlers:
    """The port `JobHandlers`: every job finishes; those to whom `hold` was said only when `let_go` is."""

    def __init__(self) -> None:
        self.begun: list[JobId] = []
        self.ended: list[JobId] = []
        self.cancelled: list[JobId] = []
        self.tidied: list[JobId] = []
        self.tidying: dict[JobId, asyncio.Event] = {}
        self.most_at_once = 0
        self.signal = Signal()
        self.endings: dict[JobId, Ending | BaseException] = {}
        self.blocking: set[JobId] = set()
        self._held: dict[JobId, asyncio.Event] = {}
        self._running = 0

    def hold(self, jobs: Sequence[JobId]) -> None:
        self._held.update({job_id: asyncio.Event() for job_id in jobs})

    def let_go(self, jobs: Sequence[JobId]) -> None:
        for job_id in jobs:
            self._held[job_id].set()

    def find(self, type: str) -> RunnableJob:
        return RunnableJob(handler=self._handle, timeout=None)

    async def _handle(self, context: JobContext) -> Ending:
        job_id = context.job.id
        self._running += 1
        self.most_at_once = max(self.most_at_once, self._running)
        self.begun.append(job_id)
        await self.signal.tell()
        try:
            if job_id in self._held:
                await self._held[job_id].wait()
        except asyncio.CancelledError:
            self.cancelled.append(job_id)
            await self.signal.tell()
            if job_id in self.tidying:
                await self.tidying[job_id].wait()
                self.tidied.append(job_id)
                await self.signal.tell()
            raise
        finally:
            self._running -= 1
        if job_id in self.blocking:
            until = time.monotonic() + 0.02
            while time.monotonic() < until:
                pass
        self.ended.append(job_id)
        ending = self.endings.get(job_id, Finished())
        if isinstance(ending, BaseException):
            raise ending
        return ending

    async def has_begun(self, count: int) -> None:
        await self.signal.when(lambda: len(self.begun) >= count)

    async def has_cancelled(self, count: int) -> None:
        await self.signal.when(lambda: len(self.cancelled) >= count)


class WatchedQueue:
    """A queue that tells what was claimed, settled and handed back, and fails when a test says so."""

    def __init__(self, queue: JobQueue) -> None:
        self._queue = queue
        self.claims: list[int] = []
        self.settled: list[JobId] = []
        self.released: list[JobId] = []
        self.renewals = 0
        self.settlements_away = 0
        self.claims_away = 0
        self.contended = 0
        self.unwritable: set[JobId] = set()
        self.when_claimed: list[JobWorker] = []
        self.signal = Signal()

    async def enqueue(self, jobs: Sequence[NewJob]) -> Sequence[Enqueued]:
        return await self._queue.enqueue(jobs)

    async def claim(self, queues: Sequence[str], *, limit: int, lease: timedelta) -> ClaimedJobs:
        self.claims.append(limit)
        await self.signal.tell()
        if self.claims_away:
            self.claims_away -= 1
            raise StorageUnavailable
        claimed = await self._queue.claim(queues, limit=0 if self.contended else limit, lease=lease)
        if self.contended:
            self.contended -= 1
            return ClaimedJobs(jobs=[], more=True, next_due=None, now=claimed.now)
        for worker in self.when_claimed:
            worker.stop()
        return claimed

    async def renew(self, leases: Sequence[JobLease], *, lease: timedelta) -> Collection[JobId]:
        kept = await self._queue.renew(leases, lease=lease)
        self.renewals += 1
        await self.signal.tell()
        return kept

    async def still_held(self, leases: Sequence[JobLease]) -> Collection[JobId]:
        return await self._queue.still_held(leases)

    async def save(self, lease: JobLease, checkpoint: Json) -> None:
        await self._queue.save(lease, checkpoint)

    async def settle(self, settled: Sequence[SettledJob]) -> Sequence[JobVerdict]:
        if self.settlements_away:
            self.settlements_away -= 1
            raise StorageUnavailable
        if self.unwritable & {one.lease.job_id for one in settled}:
            raise ZeroDivisionError
        verdicts = await self._queue.settle(settled)
        self.settled += [one.lease.job_id for one in settled]
        await self.signal.tell()
        return verdicts

    async def release(self, leases: Sequence[JobLease]) -> None:
        await self._queue.release(leases)
        self.released += [lease.job_id for lease in leases]
        await self.signal.tell()

    async def answer(self, job_id: JobId, text: str, *, by: str, key: str | None = None) -> None:
        await self._queue.answer(job_id, text, by=by, key=key)

    async def cancel(self, job_id: JobId) -> None:
        await self._queue.cancel(job_id)

    async def retry(self, job_id: JobId) -> None:
        await self._queue.retry(job_id)

    async def pause_queue(self, queue: str) -> None:
        await self._queue.pause_queue(queue)

    async def resume_queue(self, queue: str) -> None:
        await self._queue.resume_queue(queue)

    async def has_settled(self, count: int) -> None:
        await self.signal.when(lambda: len(self.settled) >= count)

    async def has_claimed(self, times: int) -> None:
        await self.signal.when(lambda: len(self.claims) >= times)

    async def has_released(self, count: int) -> None:
        await self.signal.when(lambda: len(self.released) >= count)


class RecordingBell(Bell):
    """Never rung, and waited for without time passing; stops the worker after a number of waits."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[float] = []
        self.enough = 0
        self.during: dict[int, Callable[[], Awaitable[object]]] = {}
        self.stop = asyncio.Event().set

    async def wait(self, seconds: float) -> bool:
        self.waits.append(seconds)
        if len(self.waits) >= self.enough:
            self.stop()
        if happens := self.during.get(len(self.waits)):
            await happens()
        return False


class RecordingWakeUps:
    """The port `WakeUps` with one bell."""

    def __init__(self, bell: Bell) -> None:
        self._bell = bell

    @asynccontextmanager
    async def deliveries(self) -> AsyncIterator[Bell]:
        yield self._bell

    @asynccontextmanager
    async def jobs(self, queues: Collection[str]) -> AsyncIterator[Bell]:
        yield self._bell


class Site:
    """A job worker over the memory adapters. It looks once an hour, so that whatever it does it was woken for."""

    def __init__(
        self,
        *,
        concurrency: int = 10,
        batch_size: int = 100,
        lease: timedelta = HOUR,
        drain: timedelta = HOUR,
        poll: tuple[timedelta, timedelta] = (HOUR, HOUR),
        bell: RecordingBell | None = None,
    ) -> None:
        self.world: World = memory_world()
        self.queue = WatchedQueue(self.world.jobs)
        self.handlers = ControlledHandlers()
        clock = self.world.clock
        self.worker = JobWorker(
            queues=["default"],
            claim=ClaimJobs(queue=self.queue, lease=LEASE, clock=clock),
            run_job=RunJob(
                handlers=self.handlers,
                queue=self.queue,
                progress=self.world.progress,
                clock=clock,
                ids=SteadyIds(),
            ),
            settle=SettleJobs(queue=self.queue),
            renew=RenewJobs(queue=self.queue, lease=LEASE),
            check=CheckJobs(queue=self.queue),
            release=ReleaseJobs(queue=self.queue),
            wakeups=self.world.wakeups if bell is None else RecordingWakeUps(bell),
            ids=SteadyIds(),
            pace=JobPace(
                poll_min=poll[0],
                poll_max=poll[1],
                batch_size=batch_size,
                concurrency=concurrency,
                lease=lease,
                drain=drain,
            ),
        )

    async def enqueue(self, count: int = 1, **options: int) -> list[JobId]:
        jobs = [a_new_job(**options) for _ in range(count)]  # type: ignore[arg-type]  # of retries only
        return [one.job_id for one in await self.world.jobs.enqueue(jobs)]

    @asynccontextmanager
    async def working(self) -> AsyncIterator[asyncio.Task[None]]:
        """The worker runs in the block, and has come to its end behind it."""
        running = asyncio.create_task(self.worker.run())
        try:
            yield running
        finally:
            self.worker.stop()
            async with asyncio.timeout(PATIENCE):
                await running

    async def states(self, jobs: Sequence[JobId]) -> set[JobState]:
        return {(await self.world.job_history.get(job_id)).state for job_id in jobs}


@pytest.fixture
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a worker does each second it does as often as it can."""
    monkeypatch.setattr(worker_module, "_CHECK_SECONDS", 0.0)
    monkeypatch.setattr(worker_module, "_LATE_SECONDS", 0.01)


async def test_what_is_due_is_run_and_settled() -> None:
    site = Site()
    jobs = await site.enqueue(3)

    async with site.working():
        await site.queue.has_settled(3)

    assert await site.states(jobs) == {JobState.COMPLETED}
    assert site.handlers.begun == jobs
    assert site.worker.in_flight == 0


async def test_a_worker_is_woken_long_before_it_would_look_again() -> None:
    site = Site()

    async with site.working():
        await site.queue.has_claimed(1)
        for round_ in range(1, 4):
            await site.enqueue()
            await site.queue.has_settled(round_)


async def test_more_than_a_claim_takes_is_claimed_without_waiting_in_between() -> None:
    site = Site(concurrency=2)
    jobs = await site.enqueue(50)

    async with site.working():
        await site.queue.has_settled(50)

    assert await site.states(jobs) == {JobState.COMPLETED}
    assert site.handlers.most_at_once <= 2


async def test_one_slow_job_does_not_hold_up_the_rest() -> None:
    site = Site(concurrency=2)
    (slow,) = await site.enqueue(1)
    rest = await site.enqueue(20)
    site.handlers.hold([slow])

    async with site.working():
        await site.queue.has_settled(20)
        assert await site.states(rest) == {JobState.COMPLETED}
        assert await site.states([slow]) == {JobState.PROCESSING}
        site.handlers.let_go([slow])

    assert await site.states([slow]) == {JobState.COMPLETED}


async def test_a_handler_that_fails_in_any_way_leaves_the_worker_at_work() -> None:
    site = Site()
    failing = await site.enqueue(3, max_retries=0)
    site.handlers.endings = dict(
        zip(failing, (ZeroDivisionError(), SystemExit(1), asyncio.CancelledError()), strict=True)
    )

    async with site.working():
        await site.queue.has_settled(3)
        (good,) = await site.enqueue()
        await site.queue.has_settled(4)

    assert await site.states(failing) == {JobState.FAILED}
    assert await site.states([good]) == {JobState.COMPLETED}


async def test_a_job_whose_workers_were_lost_too_often_fails_without_being_run() -> None:
    site = Site()
    (job,) = await site.enqueue()
    for _ in range(MAX_LOST_IN_A_ROW):
        await site.world.jobs.claim(["default"], limit=1, lease=LEASE)
        site.world.clock.move(LEASE)

    async with site.working():
        await site.queue.has_settled(1)

    view = await site.world.job_history.get(job)
    assert (view.state, view.failure_reason) == (JobState.FAILED, JobFailure.WORKER_LOST)
    assert site.handlers.begun == []


# Looking for work


def at_rest(*, poll: tuple[timedelta, timedelta], looks: int) -> tuple[Site, RecordingBell]:
    """A worker that is stopped after so many waits, which take no time."""
    bell = RecordingBell()
    site = Site(bell=bell, poll=poll)
    bell.enough, bell.stop = looks, site.worker.stop
    return site, bell


async def test_an_empty_look_doubles_the_wait_up_to_the_maximum() -> None:
    site, bell = at_rest(poll=(timedelta(seconds=1), timedelta(seconds=10)), looks=6)

    async with asyncio.timeout(PATIENCE):
        await site.worker.run()

    # three quarters of it, with these dice
    assert bell.waits == [0.75, 1.5, 3, 6, 7.5, 7.5]


async def test_work_resets_the_wait() -> None:
    site, bell = at_rest(poll=(timedelta(seconds=1), timedelta(seconds=10)), looks=6)
    bell.during = {3: site.enqueue}

    async with asyncio.timeout(PATIENCE):
        await site.worker.run()

    assert bell.waits == [0.75, 1.5, 3, 0.75, 0.75, 1.5]


async def test_a_job_that_waits_for_its_time_shortens_the_wait() -> None:
    site, bell = at_rest(poll=(HOUR, HOUR), looks=1)
    due = site.world.clock.now() + timedelta(seconds=3)
    await site.world.jobs.enqueue([a_new_job(run_at=due)])

    async with asyncio.timeout(PATIENCE):
        await site.worker.run()

    assert bell.waits == [3]


async def test_a_worker_that_finds_others_claiming_asks_again_after_pauses_that_grow() -> None:
    site, bell = at_rest(poll=(HOUR, HOUR), looks=4)
    site.queue.contended = 3

    async with asyncio.timeout(PATIENCE):
        await site.worker.run()

    assert bell.waits == [0.75 * 0.005, 0.75 * 0.01, 0.75 * 0.02, 0.75 * 3600]


# Claiming ahead


async def test_only_as_many_as_there_are_slots_are_claimed_before_it_is_known_how_long_they_take() -> None:
    site = Site(concurrency=3)
    jobs = await site.enqueue(10)
    site.handlers.hold(jobs)

    async with site.working():
        await site.handlers.has_begun(3)
        assert site.queue.claims == [3]
        site.handlers.let_go(jobs)


async def test_short_jobs_are_claimed_ahead_up_to_a_batch() -> None:
    site = Site(concurrency=2, batch_size=20)
    await site.enqueue(100)

    async with site.working():
        await site.queue.has_settled(100)

    assert site.queue.claims[0] == 2
    assert max(site.queue.claims) == 20


@pytest.mark.usefixtures("_impatient")
async def test_what_was_claimed_ahead_and_could_not_be_started_is_handed_back() -> None:
    site = Site(concurrency=2, batch_size=20)
    short = await site.enqueue(2)
    async with site.working():
        await site.queue.has_settled(len(short))
        jobs = [a_new_job() for _ in range(10)]
        long_ones = [job.id for job in jobs]
        site.handlers.hold(long_ones)
        await site.world.jobs.enqueue(jobs)
        await site.handlers.has_begun(4)
        await site.queue.has_released(8)
        assert await site.states(long_ones[:2]) == {JobState.PROCESSING}
        assert await site.states(long_ones[2:]) == {JobState.PENDING}
        claims = len(site.queue.claims)
        # nothing is claimed ahead until one has ended
        await asyncio.sleep(0)
        assert len(site.queue.claims) == claims
        site.handlers.let_go(long_ones)
        await site.queue.has_settled(12)

    assert await site.states(long_ones) == {JobState.COMPLETED}


# Holding and losing


async def test_what_a_worker_holds_is_renewed() -> None:
    site = Site(lease=timedelta(0))
    jobs = await site.enqueue(1)
    site.handlers.hold(jobs)

    async with site.working():
        await site.handlers.has_begun(1)
        renewals = site.queue.renewals
        site.world.clock.move(LEASE - timedelta(seconds=1))
        await site.queue.signal.when(lambda: site.queue.renewals >= renewals + 2)
        site.world.clock.move(LEASE - timedelta(seconds=1))
        assert not (await site.world.jobs.claim(["default"], limit=1, lease=LEASE)).jobs
        site.handlers.let_go(jobs)

    assert await site.states(jobs) == {JobState.COMPLETED}


async def test_a_handler_that_blocks_the_event_loop_for_longer_than_the_lease_is_warned_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    site = Site(lease=timedelta(milliseconds=3))
    blocking, other = await site.enqueue(2)
    site.handlers.hold([other])
    site.handlers.blocking = {blocking}

    async with site.working():
        await site.queue.has_settled(1)
        renewals = site.queue.renewals
        await site.queue.signal.when(lambda: site.queue.renewals > renewals)
        site.handlers.let_go([other])

    assert "a handler blocks the event loop" in caplog.text


@pytest.mark.usefixtures("_impatient")
async def test_cancelling_a_job_reaches_its_run(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    site = Site()
    jobs = await site.enqueue(2)
    site.handlers.hold(jobs)

    async with site.working():
        await site.handlers.has_begun(2)
        await site.world.jobs.cancel(jobs[0])
        await site.handlers.has_cancelled(1)
        site.handlers.let_go(jobs)

    assert site.handlers.cancelled == [jobs[0]]
    assert await site.states([jobs[0]]) == {JobState.CANCELLED}
    assert await site.states([jobs[1]]) == {JobState.COMPLETED}
    assert "was taken away; its run is cancelled" in caplog.text


async def test_a_run_whose_job_another_took_over_is_cancelled_at_the_next_heartbeat() -> None:
    site = Site(lease=timedelta(milliseconds=3))
    jobs = await site.enqueue()
    site.handlers.hold(jobs)

    async with site.working():
        await site.handlers.has_begun(1)
        site.world.clock.move(LEASE)
        while not (await site.world.jobs.claim(["default"], limit=1, lease=LEASE)).jobs:
            site.world.clock.move(LEASE)
        await site.handlers.has_cancelled(1)

    assert site.queue.settled == []
    assert await site.states(jobs) == {JobState.PROCESSING}


async def test_a_cancelled_run_that_takes_a_while_to_tidy_up_is_not_cut_off_by_the_next_heartbeat(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    site = Site(lease=timedelta(milliseconds=3), concurrency=2)
    jobs = await site.enqueue(2)
    site.handlers.hold(jobs)
    site.handlers.tidying[jobs[0]] = asyncio.Event()

    async with site.working():
        await site.handlers.has_begun(2)
        await site.world.jobs.cancel(jobs[0])
        await site.handlers.has_cancelled(1)
        later = site.queue.renewals + 3
        await site.queue.signal.when(lambda: site.queue.renewals >= later)
        site.handlers.tidying[jobs[0]].set()
        site.handlers.let_go(jobs)

    assert (site.handlers.cancelled, site.handlers.tidied) == ([jobs[0]], [jobs[0]])
    assert caplog.text.count("was taken away; its run is cancelled") == 1


async def test_a_worker_that_claims_again_what_it_lost_runs_it_only_once() -> None:
    site = Site(concurrency=2)
    jobs = await site.enqueue()
    site.handlers.hold(jobs)

    async with site.working():
        await site.handlers.has_begun(1)
        site.world.clock.move(LEASE)
        await site.enqueue()
        await site.handlers.has_cancelled(1)
        await site.handlers.has_begun(3)
        site.handlers.let_go(jobs)

    assert site.handlers.begun.count(jobs[0]) == 2
    assert site.handlers.ended.count(jobs[0]) == 1
    assert await site.states(jobs) == {JobState.COMPLETED}


# Stopping


async def test_a_worker_that_stops_lets_what_runs_end_and_hands_back_the_rest() -> None:
    site = Site(concurrency=2, batch_size=20)
    await site.enqueue(2)

    async with site.working() as running:
        await site.queue.has_settled(2)
        jobs = [a_new_job() for _ in range(5)]
        site.handlers.hold([job.id for job in jobs])
        await site.world.jobs.enqueue(jobs)
        await site.handlers.has_begun(4)
        site.worker.stop()
        await site.queue.has_released(3)
        assert not running.done()
        site.handlers.let_go([job.id for job in jobs])

    assert await site.states([job.id for job in jobs[:2]]) == {JobState.COMPLETED}
    assert await site.states([job.id for job in jobs[2:]]) == {JobState.PENDING}


async def test_an_idle_worker_stops_at_once() -> None:
    site = Site()

    async with site.working():
        await site.queue.has_claimed(1)

    assert site.queue.claims == [10]


async def test_a_worker_that_was_stopped_before_it_began_claims_nothing() -> None:
    site = Site()
    await site.enqueue()
    site.worker.stop()

    async with site.working():
        pass

    assert site.queue.claims == []


async def test_what_was_claimed_while_it_stopped_is_handed_back() -> None:
    site = Site()
    jobs = await site.enqueue(2)
    site.queue.when_claimed = [site.worker]

    async with asyncio.timeout(PATIENCE), site.working() as running:
        await running

    assert site.handlers.begun == []
    assert await site.states(jobs) == {JobState.PENDING}


async def test_what_does_not_end_in_time_is_cut_off_and_handed_back_with_nothing_spent(
    caplog: pytest.LogCaptureFixture,
) -> None:
    site = Site(drain=timedelta(0))
    jobs = await site.enqueue(1)
    site.handlers.hold(jobs)

    async with site.working():
        await site.handlers.has_begun(1)

    assert "1 jobs running, which are handed back" in caplog.text
    assert site.handlers.cancelled == jobs
    (again,) = (await site.world.jobs.claim(["default"], limit=1, lease=LEASE)).jobs
    assert (again.retry_count, again.lost_in_a_row) == (0, 0)


async def test_a_run_that_keeps_its_process_from_ending_is_named(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_module, "_TO_END_SECONDS", 0.01)
    site = Site(drain=timedelta(0))
    jobs = await site.enqueue(1)
    site.handlers.hold(jobs)
    site.handlers.tidying[jobs[0]] = asyncio.Event()

    async with site.working():
        await site.handlers.has_begun(1)

    assert f"job {jobs[0]} (count) does not let itself be cancelled" in caplog.text
    site.handlers.tidying[jobs[0]].set()
    await site.handlers.signal.when(lambda: site.handlers.tidied == jobs)


# A database that comes and goes


async def test_a_settlement_is_tried_until_it_is_written() -> None:
    site = Site()
    jobs = await site.enqueue(1)
    site.queue.settlements_away = 2

    async with site.working():
        await site.queue.has_settled(1)

    assert await site.states(jobs) == {JobState.COMPLETED}
    assert site.handlers.begun == jobs


async def test_no_more_than_a_batch_is_left_unsettled() -> None:
    site = Site(batch_size=5, concurrency=5)
    await site.enqueue(50)
    site.queue.settlements_away = 3

    async with site.working():
        await site.handlers.has_begun(5)
        await site.queue.signal.when(lambda: site.queue.settlements_away == 0 and bool(site.queue.settled))
        assert len(site.handlers.begun) <= 15
        await site.queue.has_settled(50)


async def test_claiming_goes_on_when_the_database_is_back(caplog: pytest.LogCaptureFixture) -> None:
    site = Site()
    site.queue.claims_away = 2
    jobs = await site.enqueue(1)

    async with site.working():
        await site.queue.has_settled(1)

    assert await site.states(jobs) == {JobState.COMPLETED}
    assert caplog.text.count("the database is away") == 1


async def test_a_worker_can_be_stopped_while_the_database_is_away() -> None:
    site = Site()
    site.queue.claims_away = 1_000

    async with site.working():
        await site.queue.has_claimed(1)


async def test_a_settlement_that_cannot_be_written_does_not_hold_up_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    site = Site()
    jobs = await site.enqueue(3)
    site.queue.unwritable = {jobs[1]}

    async with site.working():
        await site.queue.has_settled(2)

    assert await site.states([jobs[0], jobs[2]]) == {JobState.COMPLETED}
    assert await site.states([jobs[1]]) == {JobState.PROCESSING}
    assert f"job {jobs[1]} cannot be settled" in caplog.text
