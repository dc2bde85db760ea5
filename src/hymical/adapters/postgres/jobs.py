"""The queue of jobs and its history in PostgreSQL."""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import Any

from sqlalchemy import Row, select
from sqlalchemy.dialects.postgresql import insert

from hymical.adapters.postgres.errors import translated
from hymical.adapters.postgres.statements import as_json, in_plain_text
from hymical.adapters.postgres.tables import job_events, jobs, paused_queues
from hymical.adapters.postgres.transactions import PostgresTransactions
from hymical.domain.errors import (
    AlreadyExists,
    JobEnded,
    JobLost,
    JobNotFailed,
    JobNotWaiting,
    NotFound,
    StorageUnavailable,
)
from hymical.domain.ids import JobId, LeaseToken
from hymical.domain.jobs import (
    Answer,
    Completed,
    Failed,
    Job,
    JobFailure,
    JobState,
    Json,
    Later,
    NewJob,
    Paused,
    Priority,
    Question,
)
from hymical.domain.leases import JobLease
from hymical.domain.progress import ProgressEvent, StepStatus
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

_JSON = json.JSONEncoder(allow_nan=False)

_Place = tuple[datetime, str]

_BEGINNING: _Place = (datetime(1, 1, 1, tzinfo=UTC), "")
# what commits late, or is handed back, lies behind the floors until the next full look
_FULL_LOOK_EVERY = 2.0
_UNSETTLED = timedelta(seconds=1)
_SOUGHT_AGAIN = 5


class PostgresJobQueue:
    def __init__(self, transactions: PostgresTransactions, clock: Clock) -> None:
        self._transactions = transactions
        self._clock = clock
        self._floors: dict[str, dict[Priority, _Place]] = {}
        self._looked: dict[str, float] = {}
        self._turn = 0

    async def enqueue(self, new: Sequence[NewJob]) -> Sequence[Enqueued]:
        left, owners = new, dict[JobId, JobId]()
        for _ in range(_SOUGHT_AGAIN):
            left = await self._kept_out(left) if left else ()
            if not left:
                break
            owners |= await self._owners(left)
            # one that ended in between has set its key free
            left = [job for job in left if job.id not in owners]
        if left:
            raise StorageUnavailable("the jobs with these unique keys end and begin too fast")
        return [Enqueued(job_id=owners.get(job.id, job.id), duplicate=job.id in owners) for job in new]

    async def _kept_out(self, new: Sequence[NewJob]) -> Sequence[NewJob]:
        """Stores jobs; gives those whose unique key did not let them in."""
        if len(new) == 1:
            return () if await self._is_stored(new[0]) else new
        # two batches that share keys take them in one order: neither waits for what waits for it, but in a
        # transaction of their caller's, where one holds keys already and seeks another that was set free meanwhile
        ordered = sorted(new, key=lambda job: (job.type, job.unique_key or ""))
        kinds = [list(alike) for _, alike in groupby(ordered, key=_kind)]
        now = self._clock.pinned()
        if len(kinds) == 1:
            return await self._kept_out_of(kinds[0], now)
        async with self._transactions.together():
            # all of a batch have one time, so that the first of it is claimed first
            ((now,),) = await self._transactions.run("tell_time", {"now": now})
            return [job for alike in kinds for job in await self._kept_out_of(alike, now)]

    async def _is_stored(self, job: NewJob) -> bool:
        parameters = {
            "now": self._clock.pinned(),
            "id": job.id,
            "queue": job.queue,
            "type": job.type,
            "version": job.version,
            "payload": job.payload,
            "priority": int(job.priority),
            "run_at": job.run_at,
            "max_retries": job.max_retries,
            "unique_key": job.unique_key,
        }
        return bool(await self._transactions.run("enqueue_job", parameters))

    async def _kept_out_of(self, alike: Sequence[NewJob], now: datetime | None) -> Sequence[NewJob]:
        first = alike[0]
        parameters = {
            "now": now,
            "queue": first.queue,
            "type": first.type,
            "version": first.version,
            "max_retries": first.max_retries,
            "ids": _list([job.id for job in alike]),
            "payloads": _list([job.payload for job in alike]),
            "priorities": _list([job.priority for job in alike]),
            "run_ats": _list(_column(job.run_at and job.run_at.isoformat() for job in alike)),
            "unique_keys": _list(_column(job.unique_key for job in alike)),
        }
        stored = {row.id for row in await self._transactions.run("enqueue_jobs", parameters)}
        return [job for job in alike if job.unique_key is not None and job.id not in stored]

    async def _owners(self, kept_out: Sequence[NewJob]) -> dict[JobId, JobId]:
        """The jobs that have not ended whose unique keys these wanted."""
        wanted = {
            "types": [job.type for job in kept_out],
            "unique_keys": [job.unique_key for job in kept_out],
        }
        rows = await self._transactions.run("find_open_jobs", wanted)
        found = {(row.type, row.unique_key): JobId(row.id) for row in rows}
        return {
            job.id: found[job.type, job.unique_key] for job in kept_out if (job.type, job.unique_key) in found
        }

    async def claim(self, queues: Sequence[str], *, limit: int, lease: timedelta) -> ClaimedJobs:
        first, self._turn = self._turn % max(len(queues), 1), self._turn + 1
        claimed, more, now = list[Job](), False, self._clock.now()
        for queue in (*queues[first:], *queues[:first]):
            if len(claimed) == limit:
                return ClaimedJobs(jobs=claimed, more=True, next_due=None, now=now)
            try:
                taken = await self._claim_from(queue, limit - len(claimed), lease)
            except StorageUnavailable:
                if claimed:
                    # what was taken is held, and is not to be forgotten
                    break
                raise
            claimed += taken.jobs
            more, now = more or taken.more, taken.now
        if claimed or more:
            return ClaimedJobs(jobs=claimed, more=more, next_due=None, now=now)
        return ClaimedJobs(jobs=(), more=False, next_due=await self._next_due(queues), now=now)

    async def _claim_from(self, queue: str, limit: int, lease: timedelta) -> ClaimedJobs:
        looked = self._clock.monotonic()
        in_full = looked - self._looked.get(queue, float("-inf")) >= _FULL_LOOK_EVERY
        floors = self._floors.setdefault(queue, {})
        places = [_BEGINNING if in_full else floors.get(one, _BEGINNING) for one in Priority]
        parameters = {
            "now": self._clock.pinned(),
            "queue": queue,
            "limit": limit,
            "lease": lease,
            "priorities": [int(one) for one in Priority],
            "floor_run_ats": [run_at for run_at, _ in places],
            "floor_ids": [job_id for _, job_id in places],
        }
        if in_full:
            self._looked[queue] = looked
        rows = await self._transactions.run("claim_jobs", parameters)
        now, taken = rows[0].now, [row for row in rows if row.id is not None]
        for row in taken:
            if not row.lost:
                # ordered within its priority: the last one stays
                floors[Priority(row.priority)] = min((row.run_at, row.id), (now - _UNSETTLED, ""))
        return ClaimedJobs(
            jobs=[_job(row) for row in taken],
            more=len(taken) == limit or rows[0].defaulted > 0,
            next_due=None,
            now=now,
        )

    async def _next_due(self, queues: Sequence[str]) -> timedelta | None:
        parameters = {"now": self._clock.pinned(), "queues": list(queues)}
        (row,) = await self._transactions.run("next_due_job", parameters)
        wait: timedelta | None = row.wait
        return wait

    async def renew(self, leases: Sequence[JobLease], *, lease: timedelta) -> Collection[JobId]:
        return await self._of_the_held("renew_jobs", leases, {"now": self._clock.pinned(), "lease": lease})

    async def still_held(self, leases: Sequence[JobLease]) -> Collection[JobId]:
        return await self._of_the_held("held_jobs", leases, {})

    async def _of_the_held(
        self, name: str, leases: Sequence[JobLease], parameters: dict[str, object]
    ) -> Collection[JobId]:
        return {row.id for row in await self._transactions.run(name, parameters | _held(leases))}

    async def save(self, lease: JobLease, checkpoint: Json) -> None:
        parameters = {"id": lease.job_id, "token": lease.token, "checkpoint": _written(checkpoint)}
        if not await self._transactions.run("save_checkpoint", parameters):
            raise JobLost(lease.job_id)

    async def settle(self, settled: Sequence[SettledJob]) -> Sequence[JobVerdict]:
        # in one order everywhere, so that two batches that share a job do not wait for each other
        ordered = sorted(settled, key=lambda one: one.lease.job_id)
        pauses = [(one, one.settlement) for one in ordered if isinstance(one.settlement, Paused)]
        ends = [one for one in ordered if not isinstance(one.settlement, Paused)]
        verdicts: dict[LeaseToken, JobVerdict] = {}
        for name, batch in (("settle_jobs", self._ends(ends)), ("pause_jobs", self._pauses(pauses))):
            if batch["ids"]:
                rows = await self._transactions.run(name, batch)
                verdicts |= {row.token: JobVerdict(row.verdict) for row in rows}
        return [verdicts[one.lease.token] for one in settled]

    def _ends(self, ends: Sequence[SettledJob]) -> dict[str, Any]:
        return _held([one.lease for one in ends]) | {
            "now": self._clock.pinned(),
            "states": [_state_after(one) for one in ends],
            "delays": _column(getattr(one.settlement, "delay", None) for one in ends),
            "spends": [getattr(one.settlement, "spends", False) for one in ends],
            "failure_reasons": _column(getattr(one.settlement, "reason", None) for one in ends),
            "errors": _column(getattr(one.settlement, "error", None) for one in ends),
            "results": _column(_written(getattr(one.settlement, "result", None)) for one in ends),
        }

    def _pauses(self, pauses: Sequence[tuple[SettledJob, Paused]]) -> dict[str, Any]:
        questions = [paused.question for _, paused in pauses]
        events = [one.event for one, _ in pauses]
        return _held([one.lease for one, _ in pauses]) | {
            "now": self._clock.pinned(),
            "keys": [question.key for question in questions],
            "questions": [_written(_question_json(question)) for question in questions],
            "choices": _column(
                json.dumps(question.choices) if question.choices else None for question in questions
            ),
            "answer_within": _column(question.deadline for question in questions),
            "steps": _column(event and event.step for event in events),
            "statuses": _column(event and event.status for event in events),
            "messages": _column(_written(event.message) if event else None for event in events),
        }

    async def release(self, leases: Sequence[JobLease]) -> None:
        await self._transactions.run("release_jobs", _held(leases))
        # they lie behind the floors, and are due
        self._floors.clear()

    async def answer(self, job_id: JobId, text: str, *, by: str, key: str | None = None) -> None:
        async with self._transactions.together():
            rows = await self._transactions.run("lock_job", {"id": job_id})
            if not rows:
                raise NotFound("job", job_id)
            (found,) = rows
            question = _question(found.question)
            if question is not None:
                if key not in {None, question.key}:
                    raise JobNotWaiting(job_id, found.state, question.key)
                text, key = question.check(text), question.key
            elif key is None or found.state not in _NOT_ASKED_YET or key in (found.answers or {}):
                raise JobNotWaiting(job_id, found.state)
            else:
                # any text will do until the question says what it takes
                text = Question(key=key, text=key).check(text)
            parameters = {"now": self._clock.pinned(), "id": job_id, "key": key, "text": text, "by": by}
            await self._transactions.run("answer_job", parameters)

    async def cancel(self, job_id: JobId) -> None:
        state = await self._change("cancel_job", job_id)
        if state is not None:
            raise JobEnded(job_id, state)

    async def retry(self, job_id: JobId) -> None:
        with translated({"jobs_unique_key": AlreadyExists("job", job_id)}):
            state = await self._change("retry_job", job_id)
        if state is not None:
            raise JobNotFailed(job_id, state)

    async def _change(self, name: str, job_id: JobId) -> str | None:
        """The state that forbids the change, or None where it was made."""
        parameters = {"now": self._clock.pinned(), "id": job_id}
        if await self._transactions.run(name, parameters):
            return None
        with translated():
            async with self._transactions.connection() as connection:
                state = await connection.scalar(select(jobs.c.state).where(jobs.c.id == job_id))
        if state is None:
            raise NotFound("job", job_id)
        return str(state)

    async def pause_queue(self, queue: str) -> None:
        row = insert(paused_queues).values(queue=queue, paused_at=self._clock.now())
        with translated():
            async with self._transactions.connection() as connection:
                await connection.execute(row.on_conflict_do_nothing())

    async def resume_queue(self, queue: str) -> None:
        await self._transactions.run("resume_queue", {"queue": queue})


class PostgresJobHistory:
    def __init__(self, transactions: PostgresTransactions, clock: Clock) -> None:
        self._transactions = transactions
        self._clock = clock

    async def page(self, which: JobFilter, *, before: str | None, limit: int) -> Sequence[JobView]:
        query = _views.order_by(jobs.c.id.desc()).limit(limit)
        if which.queue is not None:
            query = query.where(jobs.c.queue == which.queue)
        if which.type is not None:
            query = query.where(jobs.c.type == which.type)
        if which.state is not None:
            query = query.where(jobs.c.state == in_plain_text(which.state))
        if before is not None:
            query = query.where(jobs.c.id < before)
        with translated():
            async with self._transactions.connection() as connection:
                return [_view(row) for row in await connection.execute(query)]

    async def get(self, job_id: JobId) -> JobView:
        with translated():
            async with self._transactions.connection() as connection:
                row = (await connection.execute(_views.where(jobs.c.id == job_id))).one_or_none()
        if row is None:
            raise NotFound("job", job_id)
        return _view(row)

    async def queues(self, *, at_most: int = COUNTED_AT_MOST) -> Sequence[QueueView]:
        parameters = {
            "now": self._clock.pinned(),
            "live_within": LIVE_WITHIN,
            "at_most": at_most,
        }
        return [QueueView(**row._asdict()) for row in await self._transactions.run("list_queues", parameters)]


_NOT_ASKED_YET = frozenset({JobState.PENDING, JobState.PROCESSING})

_views = select(
    jobs,
    job_events.c.step,
    job_events.c.status,
    job_events.c.message,
).outerjoin(job_events, (job_events.c.job_id == jobs.c.id) & (job_events.c.number == jobs.c.event_count))


def _held(leases: Sequence[JobLease]) -> dict[str, Any]:
    ordered = sorted(leases, key=lambda lease: lease.job_id)
    return {"ids": [lease.job_id for lease in ordered], "tokens": [lease.token for lease in ordered]}


def _column(values: Iterable[object]) -> list[object] | None:
    """An array for `unnest`, which fills up with nulls: one that holds nothing else need not be sent."""
    column = list(values)
    return column if any(value is not None for value in column) else None


def _kind(job: NewJob) -> tuple[str, str, int, int]:
    return job.type, job.queue, job.version, job.max_retries


def _list(values: Sequence[object] | None) -> str | None:
    return None if values is None else as_json(values)


def _written(value: Json | None) -> str | None:
    return None if value is None else _JSON.encode(value)


def _state_after(settled: SettledJob) -> JobState:
    match settled.settlement:
        case Completed():
            return JobState.COMPLETED
        case Later():
            return JobState.PENDING
        case Failed():
            return JobState.FAILED
        case Paused():
            return JobState.PAUSED


def _question_json(question: Question) -> Json:
    deadline = question.deadline
    return {
        "key": question.key,
        "text": question.text,
        "choices": question.choices,
        "deadline": None if deadline is None else deadline.total_seconds(),
        "default": question.default,
    }


def _question(stored: Mapping[str, Any] | None) -> Question | None:
    if stored is None:
        return None
    deadline = stored["deadline"]
    return Question(
        key=stored["key"],
        text=stored["text"],
        choices=tuple(stored["choices"]),
        deadline=None if deadline is None else timedelta(seconds=deadline),
        default=stored["default"],
    )


def _answers(stored: Mapping[str, Any] | None) -> Mapping[str, Answer]:
    return {
        key: Answer(text=answer["text"], by=answer["by"], at=datetime.fromisoformat(answer["at"]))
        for key, answer in (stored or {}).items()
    }


def _job(row: Row[Any]) -> Job:
    job_id = JobId(row.id)
    return Job(
        id=job_id,
        queue=row.queue,
        type=row.type,
        version=row.version,
        payload=row.payload,
        priority=Priority(row.priority),
        claim_count=row.claim_count,
        retry_count=row.retry_count,
        max_retries=row.max_retries,
        lost_in_a_row=row.lost_in_a_row,
        answers=_answers({key: one for key, one in (row.answers or {}).items() if not one.get("early")}),
        checkpoint=row.checkpoint,
        lease=JobLease(job_id=job_id, token=LeaseToken(row.lease_token)),
    )


def _view(row: Row[Any]) -> JobView:
    job_id = JobId(row.id)
    return JobView(
        id=job_id,
        queue=row.queue,
        type=row.type,
        version=row.version,
        payload=row.payload,
        priority=Priority(row.priority),
        state=JobState(row.state),
        retry_count=row.retry_count,
        max_retries=row.max_retries,
        run_at=row.run_at,
        unique_key=row.unique_key,
        question=_question(row.question),
        answer_by=row.answer_by,
        answers=_answers(row.answers),
        progress=None
        if row.step is None
        else ProgressEvent(job_id=job_id, step=row.step, status=StepStatus(row.status), message=row.message),
        event_count=row.event_count,
        result=row.result,
        failure_reason=None if row.failure_reason is None else JobFailure(row.failure_reason),
        error=row.error,
        created_at=row.created_at,
        started_at=row.started_at,
        finished_at=row.finished_at,
    )
