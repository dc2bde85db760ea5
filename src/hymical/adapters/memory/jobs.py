"""The queue of jobs and its history in memory."""

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import assert_never
from uuid import uuid4

from hymical.adapters.memory.progress import as_stored, record
from hymical.adapters.memory.store import MemoryStore, StoredJob, events_of, jobs_of
from hymical.domain.errors import (
    AlreadyExists,
    InvalidValue,
    JobEnded,
    JobLost,
    JobNotFailed,
    JobNotWaiting,
    NotFound,
)
from hymical.domain.ids import JobId, LeaseToken
from hymical.domain.jobs import (
    BY_DEFAULT,
    FINAL,
    Answer,
    Completed,
    Failed,
    Job,
    JobState,
    Json,
    Later,
    NewJob,
    Paused,
    Question,
    Settlement,
)
from hymical.domain.leases import JobLease
from hymical.ports.clock import Clock
from hymical.ports.jobs import (
    COUNTED_AT_MOST,
    ClaimedJobs,
    Enqueued,
    JobFilter,
    JobVerdict,
    JobView,
    QueueView,
    SettledJob,
)
from hymical.ports.workers import LIVE_WITHIN


class MemoryJobQueue:
    def __init__(self, store: MemoryStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._turns = 0

    async def enqueue(self, jobs: Sequence[NewJob]) -> Sequence[Enqueued]:
        now = self._clock.now()
        return [self._enqueue(job, now) for job in jobs]

    def _enqueue(self, job: NewJob, now: datetime) -> Enqueued:
        if (same := self._open_with(job.type, job.unique_key)) is not None:
            return Enqueued(job_id=same, duplicate=True)
        run_at = job.run_at or now
        self._keep(StoredJob(view=_first_view(job, run_at, now)))
        if run_at <= now:
            self._store.ring(jobs_of(job.queue))
        return Enqueued(job_id=job.id, duplicate=False)

    def _open_with(self, type: str, unique_key: str | None) -> JobId | None:
        """The job of a type that has not ended and has this key."""
        if unique_key is None:
            return None
        return next(
            (
                view.id
                for view in self._views()
                if (view.type, view.unique_key) == (type, unique_key) and view.state not in FINAL
            ),
            None,
        )

    async def claim(self, queues: Sequence[str], *, limit: int, lease: timedelta) -> ClaimedJobs:
        now, paused = self._clock.now(), self._store.rows.paused_queues
        self._turns += 1
        turn = self._turns % max(len(queues), 1)
        for queue in queues:
            self._answer_by_default(queue, now)
        running = [queue for queue in (*queues[turn:], *queues[:turn]) if queue not in paused]
        claimable = [stored for queue in running for stored in self._claimable(queue, now)]
        jobs = [self._claim(stored, now, lease) for stored in claimable[:limit]]
        return ClaimedJobs(
            jobs=jobs,
            more=len(jobs) == limit,
            next_due=None if jobs else self._next_due(running, now),
            now=now,
        )

    def _answer_by_default(self, queue: str, now: datetime) -> None:
        for view in list(self._views()):
            question = view.question
            if view.queue != queue or question is None or question.default is None:
                continue
            if view.answer_by is not None and view.answer_by <= now:
                self._answered(view, Answer(text=question.default, by=BY_DEFAULT, at=now))

    def _claimable(self, queue: str, now: datetime) -> Sequence[StoredJob]:
        return sorted(
            (
                stored
                for stored in self._store.rows.jobs.values()
                if stored.view.queue == queue and _is_claimable(stored, now)
            ),
            key=lambda stored: (stored.view.priority, stored.view.run_at, stored.view.id),
        )

    def _next_due(self, queues: Collection[str], now: datetime) -> timedelta | None:
        waits = [
            at - now
            for stored in self._store.rows.jobs.values()
            if stored.view.queue in queues and (at := _waits_for(stored)) is not None and at > now
        ]
        return min(waits, default=None)

    def _claim(self, before: StoredJob, now: datetime, lease: timedelta) -> Job:
        view, token = before.view, LeaseToken(str(uuid4()))
        lost = view.state is JobState.PROCESSING
        claimed = replace(
            before,
            view=replace(view, state=JobState.PROCESSING, started_at=view.started_at or now),
            claim_count=before.claim_count + 1,
            lost_in_a_row=before.lost_in_a_row + lost,
            token=token,
            leased_until=now + lease,
        )
        self._keep(claimed)
        return Job(
            id=view.id,
            queue=view.queue,
            type=view.type,
            version=view.version,
            payload=view.payload,
            priority=view.priority,
            claim_count=claimed.claim_count,
            retry_count=view.retry_count,
            max_retries=view.max_retries,
            lost_in_a_row=claimed.lost_in_a_row,
            answers={key: answer for key, answer in view.answers.items() if key not in before.answered_early},
            checkpoint=claimed.checkpoint,
            lease=JobLease(job_id=view.id, token=token),
        )

    async def renew(self, leases: Sequence[JobLease], *, lease: timedelta) -> Collection[JobId]:
        until = self._clock.now() + lease
        held = self._held(leases)
        for stored in held:
            self._keep(replace(stored, leased_until=until))
        return {stored.view.id for stored in held}

    async def still_held(self, leases: Sequence[JobLease]) -> Collection[JobId]:
        return {stored.view.id for stored in self._held(leases)}

    def _held(self, leases: Sequence[JobLease]) -> Sequence[StoredJob]:
        jobs = self._store.rows.jobs
        return [
            stored
            for lease in leases
            if (stored := jobs.get(lease.job_id)) is not None and stored.held_by(lease)
        ]

    async def save(self, lease: JobLease, checkpoint: Json) -> None:
        held = self._held([lease])
        if not held:
            raise JobLost(lease.job_id)
        self._keep(replace(held[0], checkpoint=as_stored(checkpoint)))

    async def settle(self, settled: Sequence[SettledJob]) -> Sequence[JobVerdict]:
        now = self._clock.now()
        return [self._settle(one, now) for one in settled]

    def _settle(self, one: SettledJob, now: datetime) -> JobVerdict:
        stored = self._store.rows.jobs.get(one.lease.job_id)
        if stored is None or stored.token != one.lease.token:
            return JobVerdict.LOST
        if not stored.held_by(one.lease):
            return JobVerdict.REPEATED
        if one.event is not None:
            record(self._store, one.lease.job_id, [one.event], now)
            stored = self._store.rows.jobs[one.lease.job_id]
        view, early = _ended(stored, one.settlement, now), stored.answered_early
        if isinstance(one.settlement, Paused):
            early -= {one.settlement.question.key}
        self._keep(replace(stored, view=view, lost_in_a_row=0, leased_until=None, answered_early=early))
        self._store.ring(events_of(view.id))
        if isinstance(one.settlement, Paused) and view.state is JobState.PENDING:
            self._store.ring(jobs_of(view.queue))
        return JobVerdict.SETTLED

    async def release(self, leases: Sequence[JobLease]) -> None:
        for stored in self._held(leases):
            view = replace(stored.view, state=JobState.PENDING)
            self._keep(replace(stored, view=view, token=None, leased_until=None))
            self._store.ring(jobs_of(view.queue))

    async def answer(self, job_id: JobId, text: str, *, by: str, key: str | None = None) -> None:
        stored, given = self._get(job_id), Answer(text=text, by=by, at=self._clock.now())
        view, question = stored.view, stored.view.question
        if question is not None and key in {None, question.key}:
            question.check(text)
            self._answered(view, given)
        elif key is None or view.state not in {JobState.PENDING, JobState.PROCESSING} or key in view.answers:
            raise JobNotWaiting(job_id, view.state, None if question is None else question.key)
        else:
            Question(key=key, text=key).check(text)
            early = replace(stored, view=replace(view, answers={**view.answers, key: given}))
            self._keep(replace(early, answered_early=stored.answered_early | {key}))

    def _answered(self, view: JobView, answer: Answer) -> None:
        assert view.question is not None  # noqa: S101  paused
        self._keep_view(
            replace(
                view,
                state=JobState.PENDING,
                run_at=answer.at,
                question=None,
                answer_by=None,
                answers={**view.answers, view.question.key: answer},
            )
        )
        self._store.ring(jobs_of(view.queue))
        self._store.ring(events_of(view.id))

    async def cancel(self, job_id: JobId) -> None:
        stored = self._get(job_id)
        if stored.view.state in FINAL:
            raise JobEnded(job_id, stored.view.state)
        view = replace(
            stored.view,
            state=JobState.CANCELLED,
            question=None,
            answer_by=None,
            finished_at=self._clock.now(),
        )
        self._keep(replace(stored, view=view, token=None, leased_until=None))
        self._store.ring(events_of(job_id))

    async def retry(self, job_id: JobId) -> None:
        stored = self._get(job_id)
        view = stored.view
        if view.state is not JobState.FAILED:
            raise JobNotFailed(job_id, view.state)
        if (same := self._open_with(view.type, view.unique_key)) is not None:
            raise AlreadyExists("job", same)
        self._keep_view(
            replace(
                view,
                state=JobState.PENDING,
                run_at=self._clock.now(),
                retry_count=0,
                failure_reason=None,
                finished_at=None,
            )
        )
        self._store.ring(jobs_of(view.queue))
        self._store.ring(events_of(job_id))

    async def pause_queue(self, queue: str) -> None:
        self._store.rows.paused_queues.setdefault(queue, self._clock.now())

    async def resume_queue(self, queue: str) -> None:
        if self._store.rows.paused_queues.pop(queue, None) is not None:
            self._store.ring(jobs_of(queue))

    def _get(self, job_id: JobId) -> StoredJob:
        if (stored := self._store.rows.jobs.get(job_id)) is None:
            raise NotFound("job", job_id)
        return stored

    def _views(self) -> Iterator[JobView]:
        return (stored.view for stored in self._store.rows.jobs.values())

    def _keep(self, stored: StoredJob) -> None:
        self._store.rows.jobs[stored.view.id] = stored

    def _keep_view(self, view: JobView) -> None:
        self._keep(replace(self._store.rows.jobs[view.id], view=view))


class MemoryJobHistory:
    def __init__(self, store: MemoryStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def page(self, which: JobFilter, *, before: str | None, limit: int) -> Sequence[JobView]:
        views = (stored.view for _, stored in sorted(self._store.rows.jobs.items(), reverse=True))
        return [view for view in views if (before is None or view.id < before) and _matches(view, which)][
            :limit
        ]

    async def get(self, job_id: JobId) -> JobView:
        if (stored := self._store.rows.jobs.get(job_id)) is None:
            raise NotFound("job", job_id)
        return stored.view

    async def queues(self, *, at_most: int = COUNTED_AT_MOST) -> Sequence[QueueView]:
        rows, live_since = self._store.rows, self._clock.now() - LIVE_WITHIN
        drained = [
            queue
            for worker in rows.workers.values()
            if worker.last_seen_at >= live_since
            for queue in worker.queues
        ]
        holding = {stored.view.queue for stored in rows.jobs.values() if stored.view.state not in FINAL}
        return [
            self._queue(name, drained.count(name), at_most)
            for name in sorted(holding | rows.paused_queues.keys() | set(drained))
        ]

    def _queue(self, name: str, workers: int, at_most: int) -> QueueView:
        now, rows = self._clock.now(), self._store.rows
        views = [stored.view for stored in rows.jobs.values() if stored.view.queue == name]
        due = [view.run_at for view in views if view.state is JobState.PENDING and view.run_at <= now]
        return QueueView(
            name=name,
            paused=name in rows.paused_queues,
            due=min(len(due), at_most),
            processing=min(sum(view.state is JobState.PROCESSING for view in views), at_most),
            lag=now - min(due) if due else None,
            workers=workers,
        )


def _first_view(job: NewJob, run_at: datetime, now: datetime) -> JobView:
    return JobView(
        id=job.id,
        queue=job.queue,
        type=job.type,
        version=job.version,
        payload=json.loads(job.payload),
        priority=job.priority,
        state=JobState.PENDING,
        retry_count=0,
        max_retries=job.max_retries,
        run_at=run_at,
        unique_key=job.unique_key,
        question=None,
        answer_by=None,
        answers={},
        progress=None,
        event_count=0,
        result=None,
        failure_reason=None,
        error=None,
        created_at=now,
        started_at=None,
        finished_at=None,
    )


def _is_claimable(stored: StoredJob, now: datetime) -> bool:
    if stored.view.state is JobState.PENDING:
        return stored.view.run_at <= now
    return stored.leased_until is not None and stored.leased_until <= now


def _waits_for(stored: StoredJob) -> datetime | None:
    """When a job is next of interest to a worker: its time, the end of its lease, or its question's deadline."""
    view = stored.view
    return view.run_at if view.state is JobState.PENDING else stored.leased_until or view.answer_by


def _ended(stored: StoredJob, settlement: Settlement, now: datetime) -> JobView:
    """What a job is once its claim has ended."""
    view = stored.view
    match settlement:
        case Completed(result=result):
            return replace(
                view, state=JobState.COMPLETED, result=as_stored(result), error=None, finished_at=now
            )
        case Failed(reason=reason, error=error):
            return replace(view, state=JobState.FAILED, failure_reason=reason, error=error, finished_at=now)
        case Later(delay=delay, spends=spends, error=error):
            return replace(
                view,
                state=JobState.PENDING,
                run_at=now + delay,
                retry_count=view.retry_count + spends,
                error=error,
            )
        case Paused(question=question):
            return _paused(stored, question, now)
        case _:
            assert_never(settlement)


def _paused(stored: StoredJob, question: Question, now: datetime) -> JobView:
    view = stored.view
    if question.key in stored.answered_early and _fits(question, view.answers[question.key].text):
        return replace(view, state=JobState.PENDING, run_at=now)
    return replace(
        view,
        state=JobState.PAUSED,
        question=question,
        answer_by=None if question.deadline is None else now + question.deadline,
        answers={key: answer for key, answer in view.answers.items() if key != question.key},
    )


def _fits(question: Question, text: str) -> bool:
    try:
        question.check(text)
    except InvalidValue:
        return False
    return True


def _matches(view: JobView, which: JobFilter) -> bool:
    wanted = ((which.queue, view.queue), (which.type, view.type), (which.state, view.state))
    return all(want is None or want == has for want, has in wanted)
