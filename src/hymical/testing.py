"""For tests of handlers: a run of one job by itself, and what came of it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from uuid import uuid4

from pydantic import BaseModel

from hymical.domain.ids import JobId, LeaseToken
from hymical.domain.jobs import Answer, Ending, Job, Json, check_json
from hymical.domain.leases import JobLease
from hymical.domain.progress import ProgressEvent, StepStatus, checked
from hymical.entrypoints.jobs.registry import JobDefinition

_NOW = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRun:
    """How the handler ended, what it published, in order, and what it saved last."""

    ending: Ending
    events: tuple[ProgressEvent, ...]
    checkpoint: Json | None


@dataclass(slots=True, kw_only=True)
class RecordingContext:
    """The port `JobContext`: keeps what a handler publishes and saves, and refuses what a worker's would."""

    job: Job
    now: datetime = _NOW
    events: list[ProgressEvent] = field(default_factory=list)
    checkpoint: Json | None = None

    async def publish(self, step: str, status: StepStatus, message: Json | None = None) -> None:
        event = ProgressEvent(job_id=self.job.id, step=step, status=status, message=message)
        self.events.append(checked(event))

    async def save(self, checkpoint: Json) -> None:
        check_json("checkpoint", checkpoint)
        self.checkpoint = json.loads(json.dumps(checkpoint))


async def run_job(
    handler: JobDefinition[...],
    payload: BaseModel | Json,
    *,
    answers: Mapping[str, str] | None = None,
    checkpoint: Json | None = None,
    retry_count: int = 0,
    now: datetime = _NOW,
    **dependencies: object,
) -> JobRun:
    """Runs a handler once, as a worker would, with the given parts instead of the container's.

    `payload` goes through JSON and the handler's model; `answers` are those given so far, by the key of their
    question; `checkpoint` is what an earlier run has saved; `retry_count` how many have failed.
    Exceptions are the handler's own.

    Raises:
        InvalidPayload: the payload does not fit.
    """
    as_json = payload.model_dump(mode="json") if isinstance(payload, BaseModel) else payload
    job_id = JobId(f"job_{uuid4().hex}")
    kind = handler.kind
    job = Job(
        id=job_id,
        queue=kind.queue,
        type=kind.name,
        version=kind.version,
        payload=as_json,
        priority=kind.priority,
        claim_count=1,
        retry_count=retry_count,
        max_retries=kind.max_retries or 0,
        lost_in_a_row=0,
        answers={key: Answer(text=text, by="test", at=now) for key, text in (answers or {}).items()},
        checkpoint=checkpoint,
        lease=JobLease(job_id=job_id, token=LeaseToken(str(uuid4()))),
    )
    context = RecordingContext(job=job, now=now, checkpoint=checkpoint)
    ending = await handler.run(context, dependencies)
    return JobRun(ending=ending, events=tuple(context.events), checkpoint=context.checkpoint)
