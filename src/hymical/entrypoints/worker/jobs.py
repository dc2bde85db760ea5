"""The loop that claims, runs and settles jobs."""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from hymical.application.jobs import (
    CheckJobs,
    ClaimJobs,
    JobClaim,
    ReleaseJobs,
    RenewJobs,
    RunJob,
    SettleJobs,
)
from hymical.domain.errors import StorageUnavailable
from hymical.domain.ids import JobId
from hymical.domain.jobs import Job
from hymical.domain.leases import JobLease
from hymical.entrypoints.worker.patience import Patience
from hymical.entrypoints.worker.settling import Settling
from hymical.ports.ids import Ids
from hymical.ports.jobs import JobVerdict, SettledJob
from hymical.ports.wakeups import WakeUps

_log = logging.getLogger(__name__)
_SHORTEST_TURN, _LONGEST_TURN = 0.005, 0.32
_AHEAD_SECONDS = 0.25
"""What a worker expects to start within this time it claims ahead."""
_LATE_SECONDS = 0.5
_CHECK_SECONDS = 1.0
_TO_END_SECONDS = 5.0
_FORGETS = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPace:
    """How much one worker takes on; `drain` is how long what runs may take once it has to stop."""

    poll_min: timedelta
    poll_max: timedelta
    batch_size: int
    concurrency: int
    lease: timedelta
    drain: timedelta


@dataclass(eq=False, slots=True, kw_only=True)
class _Held:
    """A job in this worker's hands, or one that was taken away and whose run has not ended yet: `lost`.

    `since` and `began`, of one that runs, are in the event loop's time.
    """

    job: Job
    claim: JobClaim
    since: float
    began: float = 0.0
    lost: bool = False


class JobWorker:
    """Claims jobs of named queues, runs them concurrently, and settles what has ended in batches.

    Jobs that take long are claimed as slots become free. Of short ones it claims ahead as many as it expects to
    start within a quarter of a second, by what the last ones took, and hands back those that it did not start.
    Their leases are renewed while it holds them, and a run whose job was lost is cancelled.
    """

    def __init__(
        self,
        *,
        queues: Sequence[str],
        claim: ClaimJobs,
        run_job: RunJob,
        settle: SettleJobs,
        renew: RenewJobs,
        check: CheckJobs,
        release: ReleaseJobs,
        wakeups: WakeUps,
        ids: Ids,
        pace: JobPace,
    ) -> None:
        self._queues = queues
        self._claim = claim
        self._run_job = run_job
        self._renew = renew
        self._check = check
        self._release = release
        self._wakeups = wakeups
        self._ids = ids
        self._pace = pace
        self._patience = Patience(ids)
        self._settling = Settling(
            settle,
            patience=self._patience,
            name=lambda one: f"job {one.lease.job_id}",
            judged=_judged,
            written=self._written,
        )
        self._waiting: deque[_Held] = deque()
        self._late: list[_Held] = []
        self._running: dict[_Held, asyncio.Task[None]] = {}
        self._unsettled = 0
        self._something_ended = asyncio.Event()
        self._typical_seconds: float | None = None
        self._overrated = False
        self._renewed_at = 0.0
        self._poll_seconds = pace.poll_min.total_seconds()
        self._turn = _SHORTEST_TURN

    @property
    def in_flight(self) -> int:
        return len(self._waiting) + len(self._running) + self._unsettled

    def stop(self) -> None:
        """Claims nothing more; `run` returns once what runs has ended, or `JobPace.drain` has passed."""
        self._patience.end()

    async def run(self) -> None:
        async with self._wakeups.jobs(self._queues) as bell, self._settling.open(), self._minding():
            while not self._patience.is_over():
                self._something_ended.clear()
                room = self._room()
                if not room:
                    await self._patience.until_any(self._something_ended.wait())
                    continue
                claim = await self._patience.persistently(
                    partial(self._claim, self._queues, room), "claim", until_stopped=True
                )
                if claim is None:
                    break
                self._take(claim)
                pause = self._pause_after(claim)
                if pause is not None:
                    await self._patience.until_any(bell.wait(pause))
            await self._drain()

    def _room(self) -> int:
        """How many jobs to claim now."""
        if self._unsettled >= self._pace.batch_size:
            return 0
        free = self._pace.concurrency - len(self._running)
        ahead = self._expected_to_start()
        if len(self._waiting) >= free and len(self._waiting) * 2 > ahead:
            return 0
        return min(free + ahead - len(self._waiting), self._pace.batch_size)

    def _expected_to_start(self) -> int:
        if self._typical_seconds is None or self._overrated:
            return 0
        turns = _AHEAD_SECONDS / max(self._typical_seconds, _AHEAD_SECONDS / self._pace.batch_size)
        return min(int(turns * self._pace.concurrency), self._pace.batch_size)

    def _take(self, claim: JobClaim) -> None:
        since = _time()
        again = {job.id for job in claim.to_run}
        self._lose([one for one in self._held() if one.job.id in again])
        self._waiting += [_Held(job=job, claim=claim, since=since) for job in claim.to_run]
        self._settle(claim.given_up)
        self._start_waiting()

    def _pause_after(self, claim: JobClaim) -> float | None:
        """How long to wait before the next look; None for not at all."""
        if claim.to_run or claim.given_up:
            self._poll_seconds, self._turn = self._pace.poll_min.total_seconds(), _SHORTEST_TURN
            return None if claim.more else self._jittered(self._poll_seconds)
        if claim.more:
            # another claims there, and may stand still: asking without a pause would only wear out the database
            turn, self._turn = self._turn, min(self._turn * 2, _LONGEST_TURN)
            return self._jittered(turn)
        wait = self._jittered(self._poll_seconds)
        self._poll_seconds = min(self._poll_seconds * 2, self._pace.poll_max.total_seconds())
        if claim.next_due is None:
            return wait
        return min(wait, max(claim.next_due.total_seconds(), _SHORTEST_TURN))

    def _jittered(self, seconds: float) -> float:
        return seconds * (0.75 + self._ids.dice() / 4)

    def _start_waiting(self) -> None:
        now = _time()
        while (
            self._waiting
            and not self._patience.is_over()
            and len(self._running) < self._pace.concurrency
            and self._unsettled < self._pace.batch_size
        ):
            one = self._waiting.popleft()
            if now - one.since > 2 * _LATE_SECONDS:
                # this process stood still: the lease may have ended, and another may be running it by now
                self._late.append(one)
                continue
            one.began = now
            task = self._running[one] = asyncio.create_task(self._run(one))
            # a task that is cancelled before its first step runs nothing of its own, not even a finally
            task.add_done_callback(partial(self._ended, one))

    async def _run(self, one: _Held) -> None:
        settled = await self._run_job(one.job, now=one.claim.now, claimed_at=one.claim.claimed_at)
        self._learn(_time() - one.began)
        if settled is not None:
            self._settle([settled])

    def _ended(self, one: _Held, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (fault := task.exception()) is not None:
            _log.error("job %s cannot be run; its lease will end", one.job.id, exc_info=fault)
        del self._running[one]
        self._something_ended.set()
        self._start_waiting()

    def _learn(self, seconds: float) -> None:
        known = seconds if self._typical_seconds is None else self._typical_seconds
        self._typical_seconds = known + _FORGETS * (seconds - known)
        self._overrated = False

    def _settle(self, ended: Sequence[SettledJob]) -> None:
        self._unsettled += len(ended)
        self._settling.add(ended)

    def _written(self, ended: Sequence[SettledJob]) -> None:
        self._unsettled -= len(ended)
        self._something_ended.set()
        self._start_waiting()

    def _held(self) -> list[_Held]:
        return [*self._waiting, *(one for one in self._running if not one.lost)]

    def _lose(self, lost: Sequence[_Held]) -> None:
        for one in lost:
            if one in self._running and not one.lost:
                # only once: a second time would cut off what it does to tidy up
                one.lost = True
                _log.info("job %s (%s) was taken away; its run is cancelled", one.job.id, one.job.type)
                self._running[one].cancel()
            elif one in self._waiting:
                self._waiting.remove(one)

    @asynccontextmanager
    async def _minding(self) -> AsyncIterator[None]:
        """Renews what is held, notices what was lost, and hands back what cannot be started."""
        self._renewed_at = _time()
        minding = [
            asyncio.create_task(_every(seconds, call))
            for seconds, call in (
                (self._pace.lease.total_seconds() / 3, self._renew_held),
                (_CHECK_SECONDS, self._check_long_ones),
                (_LATE_SECONDS, self._hand_back_late_ones),
            )
        ]
        try:
            yield
        finally:
            for task in minding:
                task.cancel()
            await asyncio.gather(*minding, return_exceptions=True)

    async def _renew_held(self) -> None:
        began, held = _time(), self._held()
        if held and began - self._renewed_at > self._pace.lease.total_seconds():
            _log.warning(
                "leases could not be renewed for %.0f s, so others may run these jobs by now: the database was"
                " away, this process stood still, or a handler blocks the event loop",
                began - self._renewed_at,
            )
        await self._lose_others_of(held, self._renew)
        self._renewed_at = began

    async def _check_long_ones(self) -> None:
        long_since = _time() - _CHECK_SECONDS
        long_ones = [one for one in self._running if not one.lost and one.began <= long_since]
        await self._lose_others_of(long_ones, self._check)

    async def _lose_others_of(
        self, held: Sequence[_Held], ask: Callable[[Sequence[JobLease]], Awaitable[Collection[JobId]]]
    ) -> None:
        if held:
            kept = await ask([one.job.lease for one in held])
            self._lose([one for one in held if one.job.id not in kept])

    async def _hand_back_late_ones(self) -> None:
        late_since = _time() - _LATE_SECONDS
        while self._waiting and self._waiting[0].since <= late_since:
            self._late.append(self._waiting.popleft())
        if self._late:
            # the next ones are claimed as slots become free, until one has ended and shows how long they take
            self._overrated = True
            late, self._late = self._late, []
            await self._hand_back(late)

    async def _hand_back(self, unfinished: Sequence[_Held]) -> None:
        if unfinished:
            try:
                await self._release([one.job.lease for one in unfinished])
            except StorageUnavailable:
                _log.warning("%d jobs could not be handed back; their leases will end", len(unfinished))

    async def _drain(self) -> None:
        unstarted = [*self._late, *self._waiting]
        self._late.clear()
        self._waiting.clear()
        await self._hand_back(unstarted)
        if await self._ended_within(self._pace.drain.total_seconds()):
            return
        _log.warning("stopped with %d jobs running, which are handed back", len(self._running))
        cut_off = dict(self._running)
        for task in cut_off.values():
            task.cancel()
        await self._ended_within(_TO_END_SECONDS)
        await self._hand_back([one for one, task in cut_off.items() if task.cancelled()])
        for one in self._running:
            _log.warning(
                "job %s (%s) does not let itself be cancelled; this process cannot end before it",
                one.job.id,
                one.job.type,
            )

    async def _ended_within(self, seconds: float) -> bool:
        """Whether all that runs has ended and is settled by then."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._running or self._unsettled:
                    self._something_ended.clear()
                    await self._something_ended.wait()
        return not self._running and not self._unsettled


def _judged(one: SettledJob, verdict: JobVerdict) -> None:
    if verdict is JobVerdict.LOST:
        _log.info("job %s was cancelled or taken over before its end was written", one.lease.job_id)


async def _every(seconds: float, call: Callable[[], Awaitable[None]]) -> None:
    wait = seconds
    while True:
        await asyncio.sleep(wait)
        try:
            await call()
            wait = seconds
        except StorageUnavailable:
            wait = min(seconds, _CHECK_SECONDS)
        except Exception:  # noqa: BLE001  what it is does not matter: it must not stop the worker
            _log.exception("what a worker does beside its jobs failed")


def _time() -> float:
    return asyncio.get_running_loop().time()
