"""The queue of jobs, its history, and what runs them."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Protocol

from hymical.domain.ids import JobId
from hymical.domain.jobs import (
    Answer,
    Ending,
    Job,
    JobFailure,
    JobState,
    Json,
    NewJob,
    Priority,
    Question,
    Settlement,
)
from hymical.domain.leases import JobLease
from hymical.domain.progress import ProgressEvent, StepStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class Enqueued:
    """`duplicate`: a job with the same type and unique key had not ended; `job_id` is that job's."""

    job_id: JobId
    duplicate: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedJobs:
    """What one claim took.

    `more` says that others may be claimable right now; `next_due`, where nothing was claimed, how long until the
    first one that waits for its time. `now` is the database's time of the claim.
    """

    jobs: Sequence[Job]
    more: bool
    next_due: timedelta | None
    now: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class SettledJob:
    """How the holder of a job gives it up; a pause brings the event that tells of its question."""

    lease: JobLease
    settlement: Settlement
    event: ProgressEvent | None = None


class JobVerdict(StrEnum):
    """What became of a settlement; `REPEATED` had been written before, by a call that did not learn of it."""

    SETTLED = "settled"
    REPEATED = "repeated"
    LOST = "lost"


class JobQueue(Protocol):
    """Jobs on named queues, each in the hands of at most one holder.

    No two callers ever hold the same live lease, and whoever lost a lease changes nothing with it: `renew`,
    `save`, `settle` and `release` carry the token of the claim. Cancelled, reclaimed and deleted jobs are lost
    to whoever held them.
    """

    async def enqueue(self, jobs: Sequence[NewJob]) -> Sequence[Enqueued]:
        """Stores jobs, in one step, and wakes the workers once that is committed.

        One whose unique key belongs to a job of its type that has not ended is not stored.
        """
        ...

    async def claim(self, queues: Sequence[str], *, limit: int, lease: timedelta) -> ClaimedJobs:
        """Takes up to `limit` due jobs of these queues for the time of `lease`; paused queues give none.

        Of one queue those of the lower priority number come first, then those that are due longest. Each gets a
        new token and the next claim number. One whose lease has ended is claimable again, and counted as lost.
        Questions whose deadline has passed get their default answer first; `more` says so where their jobs were
        not taken yet.
        """
        ...

    async def renew(self, leases: Sequence[JobLease], *, lease: timedelta) -> Collection[JobId]:
        """Extends leases to `lease` from now; gives those that are still held."""
        ...

    async def still_held(self, leases: Sequence[JobLease]) -> Collection[JobId]:
        """Those that are still held, without writing anything."""
        ...

    async def save(self, lease: JobLease, checkpoint: Json) -> None:
        """Keeps what the next run of the job is to begin with.

        In one transaction with an effect on the database, the effect happens exactly once.

        Raises:
            JobLost: the lease is not held any more.
        """
        ...

    async def settle(self, settled: Sequence[SettledJob]) -> Sequence[JobVerdict]:
        """Ends claims, in one step; the verdicts are in the order of the settlements.

        A pause whose question was answered before it was asked is pending at once, if the answer fits.
        """
        ...

    async def release(self, leases: Sequence[JobLease]) -> None:
        """Hands back what was not run to its end: due again at once, nothing spent. Lost leases are ignored."""
        ...

    async def answer(self, job_id: JobId, text: str, *, by: str, key: str | None = None) -> None:
        """Answers the question of a paused job, which is then pending.

        With `key` the answer is for that question only, and may come before the pause is committed: a run is given it
        once the job has asked, and if it fits.

        Raises:
            NotFound: there is no such job.
            JobNotWaiting: it waits for no answer, or for that of another question.
            InvalidValue: the answer does not fit the question.
        """
        ...

    async def cancel(self, job_id: JobId) -> None:
        """Ends a job that has not ended. Whoever holds it finds that out within seconds.

        Raises:
            NotFound: there is no such job.
            JobEnded: it has ended.
        """
        ...

    async def retry(self, job_id: JobId) -> None:
        """Starts a failed job afresh, with its checkpoint and answers, and wakes the workers.

        Raises:
            NotFound: there is no such job.
            JobNotFailed: it is in another state than failed.
            AlreadyExists: another one with its unique key has not ended.
        """
        ...

    async def pause_queue(self, queue: str) -> None:
        """No job of the queue is claimed until it is resumed; what runs goes on."""
        ...

    async def resume_queue(self, queue: str) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class JobView:
    """A job as people read it. `progress` is its newest event."""

    id: JobId
    queue: str
    type: str
    version: int
    payload: Json
    priority: Priority
    state: JobState
    retry_count: int
    max_retries: int
    run_at: datetime
    unique_key: str | None
    question: Question | None
    answer_by: datetime | None
    answers: Mapping[str, Answer]
    progress: ProgressEvent | None
    event_count: int
    result: Json | None
    failure_reason: JobFailure | None
    error: str | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFilter:
    queue: str | None = None
    type: str | None = None
    state: JobState | None = None


COUNTED_AT_MOST = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueView:
    """A queue as people read it.

    `due` and `processing` count up to a bound; `lag` is how long the oldest one that is due has waited; `workers` are
    live ones that drain it.
    """

    name: str
    paused: bool
    due: int
    processing: int
    lag: timedelta | None
    workers: int

    @property
    def unserved(self) -> bool:
        """Jobs are due, and nobody is there to run them."""
        return self.due > 0 and self.workers == 0

    @property
    def abandoned(self) -> bool:
        """Jobs are due or were begun, nobody is there to run them, and it is not paused on purpose."""
        return self.due + self.processing > 0 and self.workers == 0 and not self.paused


class JobHistory(Protocol):
    async def page(self, which: JobFilter, *, before: str | None, limit: int) -> Sequence[JobView]:
        """The newest first, those older than the one with the id `before`, at most `limit`."""
        ...

    async def get(self, job_id: JobId) -> JobView:
        """Raises `NotFound`."""
        ...

    async def queues(self, *, at_most: int = COUNTED_AT_MOST) -> Sequence[QueueView]:
        """Every queue that holds jobs that have not ended, is paused, or has a live worker; by name.

        Jobs are counted up to `at_most`.
        """
        ...


class JobContext(Protocol):
    """What a handler is given about the run it is in."""

    @property
    def job(self) -> Job: ...

    @property
    def now(self) -> datetime:
        """The database's time of the claim, plus what has passed since."""
        ...

    async def publish(self, step: str, status: StepStatus, message: Json | None = None) -> None:
        """Tells whoever watches. Raises `JobLost`: stop, another may be running the job."""
        ...

    async def save(self, checkpoint: Json) -> None:
        """Keeps what the next run is to begin with. Raises `JobLost`."""
        ...


class JobHandler(Protocol):
    """Runs one job. At least once: it must be safe to repeat."""

    async def __call__(self, context: JobContext) -> Ending:
        """Any exception is an error that is retried.

        Raises:
            InvalidPayload: the payload does not parse; the job fails.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnableJob:
    """A handler with the time it may take; None for no end."""

    handler: JobHandler
    timeout: timedelta | None


class JobHandlers(Protocol):
    def find(self, type: str) -> RunnableJob | None:
        """What runs jobs of a type, or None when this build does not know it."""
        ...
