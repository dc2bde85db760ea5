"""Enqueuing, running and settling jobs, and what people do with them."""

import asyncio
import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from hymical.domain.errors import InvalidPayload, JobLost, StorageUnavailable
from hymical.domain.ids import JobId
from hymical.domain.jobs import (
    AskHuman,
    Ending,
    Errored,
    GiveUp,
    Job,
    JobCatalog,
    JobFailure,
    Json,
    Priority,
    Question,
    RetryLater,
    SubjectGone,
    check_json,
    lost_for_good,
    settle,
)
from hymical.domain.leases import JobLease
from hymical.domain.progress import ProgressEvent, StepStatus, checked
from hymical.domain.retries import wait_after_fault
from hymical.ports.clock import Clock
from hymical.ports.ids import Ids
from hymical.ports.jobs import (
    Enqueued,
    JobFilter,
    JobHandlers,
    JobHistory,
    JobQueue,
    JobVerdict,
    JobView,
    QueueView,
    RunnableJob,
    SettledJob,
)
from hymical.ports.progress import ProgressBus

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class EnqueueJob:
    """Queues a job of a type, within the transaction that is open, if one is. Raises `UnknownJobType`."""

    catalog: JobCatalog
    queue: JobQueue
    ids: Ids

    async def __call__(
        self,
        name: str,
        payload: Json,
        *,
        run_at: datetime | None = None,
        unique_key: str | None = None,
        priority: Priority | None = None,
    ) -> Enqueued:
        job = self.catalog.job(
            name, payload, id=self.ids.job(), run_at=run_at, unique_key=unique_key, priority=priority
        )
        (enqueued,) = await self.queue.enqueue([job])
        return enqueued


@dataclass(frozen=True, slots=True, kw_only=True)
class JobClaim:
    """What one claim brought in.

    `given_up` lost their worker too often to be run; they are to be settled as they are. `claimed_at` is the
    monotonic time before the claim, `now` the database's time of it; `more` and `next_due` are as the queue says.
    """

    to_run: Sequence[Job]
    given_up: Sequence[SettledJob]
    claimed_at: float
    now: datetime
    more: bool
    next_due: timedelta | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimJobs:
    """Takes due jobs of some queues, to run now.

    Raises:
        StorageUnavailable: nothing is held, as far as can be known.
    """

    queue: JobQueue
    lease: timedelta
    clock: Clock

    async def __call__(self, queues: Sequence[str], limit: int) -> JobClaim:
        # read before the claim, so that the time since then is never underrated
        claimed_at = self.clock.monotonic()
        claimed = await self.queue.claim(queues, limit=limit, lease=self.lease)
        to_run: list[Job] = []
        given_up: list[SettledJob] = []
        for job in claimed.jobs:
            failed = lost_for_good(job)
            if failed is None:
                to_run.append(job)
            else:
                _log.warning("job %s (%s): %s", job.id, job.type, failed.error)
                given_up.append(SettledJob(lease=job.lease, settlement=failed))
        return JobClaim(
            to_run=to_run,
            given_up=given_up,
            claimed_at=claimed_at,
            now=claimed.now,
            more=claimed.more,
            next_due=claimed.next_due,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LeasedContext:
    """The port `JobContext`: what a handler tells and keeps is written under the lease of its run."""

    job: Job
    claimed_now: datetime
    claimed_at: float
    queue: JobQueue
    progress: ProgressBus
    clock: Clock

    @property
    def now(self) -> datetime:
        return self.claimed_now + timedelta(seconds=self.clock.monotonic() - self.claimed_at)

    async def publish(self, step: str, status: StepStatus, message: Json | None = None) -> None:
        event = ProgressEvent(job_id=self.job.id, step=step, status=status, message=message)
        await self.progress.publish(self.job.lease, [checked(event)])

    async def save(self, checkpoint: Json) -> None:
        check_json("checkpoint", checkpoint)
        await self.queue.save(self.job.lease, checkpoint)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunJob:
    """Runs one job to its end, whatever that is; says how it is to be settled, or None when it was lost.

    An exception is an error, which is kept as its class and message, and whose traceback is logged. A database
    that is away is none: the job runs again later, and has spent nothing. Cancellation is passed on.
    """

    handlers: JobHandlers
    queue: JobQueue
    progress: ProgressBus
    clock: Clock
    ids: Ids

    async def __call__(self, job: Job, *, now: datetime, claimed_at: float) -> SettledJob | None:
        context = LeasedContext(
            job=job,
            claimed_now=now,
            claimed_at=claimed_at,
            queue=self.queue,
            progress=self.progress,
            clock=self.clock,
        )
        runnable = self.handlers.find(job.type)
        return self._settled(job, _unknown(job)) if runnable is None else await self._run(runnable, context)

    async def _run(self, runnable: RunnableJob, context: LeasedContext) -> SettledJob | None:
        job = context.job
        limit = asyncio.timeout(None if runnable.timeout is None else runnable.timeout.total_seconds())
        try:
            async with limit:
                ending = await runnable.handler(context)
            return self._settled(job, ending)
        except BaseException as error:
            # a handler may fail in any way, also by what it returns, and none of it is to end its worker
            if isinstance(error, GeneratorExit) or (
                isinstance(error, asyncio.CancelledError) and _is_cancelled()
            ):
                raise
            late = TimeoutError(f"it took longer than {runnable.timeout}") if limit.expired() else None
            failure = self._after(late or error, job)
        if failure is None:
            _log.info("job %s (%s) was taken away while it ran", job.id, job.type)
            return None
        return self._settled(job, failure)

    def _settled(self, job: Job, ending: Ending | Errored) -> SettledJob:
        event = _asks(job, ending.question) if isinstance(ending, AskHuman) else None
        settlement = settle(job, ending, self.ids.dice())
        _say(job, ending)
        return SettledJob(lease=job.lease, settlement=settlement, event=event)

    def _after(self, error: BaseException, job: Job) -> Ending | Errored | None:
        if _holds(error, JobLost):
            return None
        if _holds(error, StorageUnavailable):
            wait = wait_after_fault(job.claim_count, self.ids.dice())
            return RetryLater(after=wait, why="the database was away")
        if isinstance(error, InvalidPayload):
            return GiveUp(error=f"its payload does not fit: {error.flaw}", reason=JobFailure.INVALID_PAYLOAD)
        _log.warning("job %s (%s) failed in its run %d", job.id, job.type, job.claim_count, exc_info=error)
        return Errored(error=_words(error))


@dataclass(frozen=True, slots=True, kw_only=True)
class SettleJobs:
    """Writes down how jobs ended.

    Raises:
        StorageUnavailable: whether it was written is unknown; it may be written again.
    """

    queue: JobQueue

    async def __call__(self, ended: Sequence[SettledJob]) -> Sequence[JobVerdict]:
        return await self.queue.settle(ended)


@dataclass(frozen=True, slots=True, kw_only=True)
class RenewJobs:
    """The heartbeat of a worker: extends what it holds; gives what it still holds."""

    queue: JobQueue
    lease: timedelta

    async def __call__(self, leases: Sequence[JobLease]) -> Collection[JobId]:
        return await self.queue.renew(leases, lease=self.lease)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckJobs:
    """Which jobs a worker still holds; the others were cancelled, reclaimed or deleted."""

    queue: JobQueue

    async def __call__(self, leases: Sequence[JobLease]) -> Collection[JobId]:
        return await self.queue.still_held(leases)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseJobs:
    """Hands back what was not run to its end, for others to take at once."""

    queue: JobQueue

    async def __call__(self, leases: Sequence[JobLease]) -> None:
        await self.queue.release(leases)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerQuestion:
    """Answers what a job asks. Raises `NotFound`, `JobNotWaiting` or `InvalidValue`."""

    queue: JobQueue
    history: JobHistory

    async def __call__(self, job_id: JobId, text: str, *, by: str, key: str | None = None) -> JobView:
        await self.queue.answer(job_id, text, by=by, key=key)
        return await self.history.get(job_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelJob:
    """Ends a job that has not ended. Raises `NotFound` or `JobEnded`."""

    queue: JobQueue
    history: JobHistory

    async def __call__(self, job_id: JobId) -> JobView:
        await self.queue.cancel(job_id)
        return await self.history.get(job_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryJob:
    """Starts a failed job afresh. Raises `NotFound`, `JobNotFailed` or `AlreadyExists`."""

    queue: JobQueue
    history: JobHistory

    async def __call__(self, job_id: JobId) -> JobView:
        await self.queue.retry(job_id)
        return await self.history.get(job_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowJob:
    """Raises `NotFound`."""

    history: JobHistory

    async def __call__(self, job_id: JobId) -> JobView:
        return await self.history.get(job_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListJobs:
    """The newest first."""

    history: JobHistory

    async def __call__(self, which: JobFilter, *, before: str | None, limit: int) -> Sequence[JobView]:
        return await self.history.page(which, before=before, limit=limit)


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseQueue:
    """No job of the queue is started until it is resumed; what runs goes on. May be repeated."""

    queue: JobQueue

    async def __call__(self, name: str) -> None:
        await self.queue.pause_queue(name)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeQueue:
    """May be repeated."""

    queue: JobQueue

    async def __call__(self, name: str) -> None:
        await self.queue.resume_queue(name)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListQueues:
    """By name."""

    history: JobHistory

    async def __call__(self) -> Sequence[QueueView]:
        return await self.history.queues()


def _unknown(job: Job) -> GiveUp:
    missing = (
        f"the worker that took it has no job type {job.type}: start it with one that has, then retry the job"
    )
    return GiveUp(error=missing, reason=JobFailure.UNKNOWN_TYPE)


def _asks(job: Job, question: Question) -> ProgressEvent:
    message = {"question": question.text, "choices": list(question.choices)}
    return checked(ProgressEvent(job_id=job.id, step=question.key, status=StepStatus.PAUSED, message=message))


def _is_cancelled() -> bool:
    """Whether this task is to end; a handler may also meet the cancellation of another."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _holds(error: BaseException, kind: type[Exception]) -> bool:
    """Whether it is of that kind, or a task group's with one of that kind in it."""
    return isinstance(error, kind) or (
        isinstance(error, BaseExceptionGroup) and error.subgroup(kind) is not None
    )


def _words(error: BaseException) -> str:
    name = type(error).__name__
    try:
        return f"{name}: {error}"
    except Exception:  # noqa: BLE001  what it is does not matter: an exception may fail to say what it is
        return name


def _say(job: Job, ending: Ending | Errored) -> None:
    match ending:
        case SubjectGone(what=what):
            _log.info("job %s (%s) has nothing to do: %s is gone", job.id, job.type, what)
        case GiveUp(error=error):
            _log.warning("job %s (%s) gives up: %s", job.id, job.type, error)
        case _:
            pass
