"""Jobs, their events, and queues on the wire."""

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from hymical.domain.jobs import JobState, Json, Question
from hymical.domain.progress import ProgressEvent, RecordedEvent, StepStatus
from hymical.entrypoints.api.schemas.instants import Instant, InstantIn
from hymical.ports.jobs import JobView, QueueView


class QuestionOut(BaseModel):
    key: str = Field(description="Names the question within its job; the answer is found under it.")
    text: str
    choices: list[str] = Field(description="What may be answered; empty where any text will do.")
    answer_by: Instant | None = Field(description="When the default becomes the answer.")
    default: str | None

    @classmethod
    def of(cls, question: Question, job: JobView) -> "QuestionOut":
        return cls(
            key=question.key,
            text=question.text,
            choices=list(question.choices),
            answer_by=job.answer_by,
            default=question.default,
        )


class AnswerOut(BaseModel):
    text: str
    by: str = Field(
        description="The id of the key that was used; cli for a command; default: the time was up."
    )
    at: Instant


class AnswerIn(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    answer: str = Field(description="One of the question's choices, where it has any.")
    question: str | None = Field(
        default=None,
        description="The key of the question that is meant; with it an answer may come before the job has asked.",
    )


_STATUS = "Of the step: started, progress, completed, skipped or paused."
_MESSAGE = "Whatever the job tells with it."


class ProgressOut(BaseModel):
    step: str
    status: StepStatus = Field(description=_STATUS)
    message: dict[str, Any] | None = Field(description=_MESSAGE)

    @classmethod
    def of(cls, event: ProgressEvent) -> "ProgressOut":
        return cls(step=event.step, status=event.status, message=_object(event.message))


class EventOut(BaseModel):
    number: int = Field(description="Counts from 1 within the job, without gaps.")
    at: Instant
    job_id: str
    step: str
    status: StepStatus = Field(description=_STATUS)
    message: dict[str, Any] | None = Field(description=_MESSAGE)

    @classmethod
    def of(cls, recorded: RecordedEvent) -> "EventOut":
        event = recorded.event
        return cls(
            number=recorded.number,
            at=recorded.at,
            job_id=event.job_id,
            step=event.step,
            status=event.status,
            message=_object(event.message),
        )


class EndOut(BaseModel):
    """The last of a stream: how the job ended."""

    job_id: str
    state: JobState
    failure_reason: str | None
    error: str | None
    result: dict[str, Any] | None
    finished_at: Instant | None

    @classmethod
    def of(cls, job: JobView) -> "EndOut":
        return cls(
            job_id=job.id,
            state=job.state,
            failure_reason=job.failure_reason,
            error=job.error,
            result=_object(job.result),
            finished_at=job.finished_at,
        )


class JobOut(BaseModel):
    id: str
    queue: str
    type: str
    version: int = Field(description="Of the payload's shape.")
    payload: dict[str, Any]
    priority: int = Field(description="1 to 4; of the due jobs of a queue the lowest number starts first.")
    state: JobState
    retry_count: int
    max_retries: int
    run_at: Instant = Field(description="Not started before this.")
    unique_key: str | None = Field(description="Of the jobs of a type that have not ended, only one has it.")
    question: QuestionOut | None = Field(description="What a paused job waits for.")
    answers: dict[str, AnswerOut] = Field(description="Those given so far, by the key of their question.")
    progress: ProgressOut | None = Field(description="Its newest event.")
    event_count: int
    result: dict[str, Any] | None
    failure_reason: str | None = Field(
        description="exhausted, gave_up, unknown_type, invalid_payload or worker_lost"
    )
    error: str | None = Field(description="What went wrong last.")
    created_at: Instant
    started_at: Instant | None = Field(description="When it was last claimed.")
    finished_at: Instant | None

    @classmethod
    def of(cls, job: JobView) -> "JobOut":
        return cls(
            id=job.id,
            queue=job.queue,
            type=job.type,
            version=job.version,
            payload=dict(job.payload),
            priority=job.priority,
            state=job.state,
            retry_count=job.retry_count,
            max_retries=job.max_retries,
            run_at=job.run_at,
            unique_key=job.unique_key,
            question=QuestionOut.of(job.question, job) if job.question else None,
            answers={
                key: AnswerOut(text=answer.text, by=answer.by, at=answer.at)
                for key, answer in job.answers.items()
            },
            progress=ProgressOut.of(job.progress) if job.progress else None,
            event_count=job.event_count,
            result=_object(job.result),
            failure_reason=job.failure_reason,
            error=job.error,
            created_at=job.created_at,
            started_at=job.started_at,
            finished_at=job.finished_at,
        )


class JobIn(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    type: str = Field(description="One that the API's own build knows; its queue is where the job goes.")
    payload: dict[str, Any] = Field(default_factory=dict, description="What the type takes.")
    run_at: InstantIn | None = Field(default=None, description="Not started before this.")
    unique_key: str | None = Field(
        default=None,
        min_length=1,
        max_length=255,
        pattern=r"^[!-~]+$",
        description="Visible ASCII. Where a job of this type with this key has not ended, that one is the answer.",
    )
    priority: int | None = Field(default=None, ge=1, le=4, description="The lowest starts first.")


class EnqueuedOut(JobOut):
    duplicate: bool = Field(description="Whether the same was asked for before, and this is the job of then.")

    @classmethod
    def showing(cls, job: JobView, *, duplicate: bool) -> "EnqueuedOut":
        return cls(**dict(JobOut.of(job)), duplicate=duplicate)


class QueueOut(BaseModel):
    name: str
    paused: bool
    due: int = Field(description="Jobs that could start now, counted up to 10,000.")
    processing: int
    lag_seconds: float | None = Field(description="How long the one that is due longest has waited.")
    workers: int = Field(description="Live ones that drain it.")
    unserved: bool = Field(description="Jobs are due, and no worker is there that would run them.")

    @classmethod
    def of(cls, queue: QueueView) -> "QueueOut":
        return cls(
            name=queue.name,
            paused=queue.paused,
            due=queue.due,
            processing=queue.processing,
            lag_seconds=None if queue.lag is None else queue.lag / timedelta(seconds=1),
            workers=queue.workers,
            unserved=queue.unserved,
        )

    @classmethod
    def named(cls, name: str, queues: Iterable[QueueView]) -> "QueueOut":
        """The queue of that name; where it is not listed, there is nothing in it and nobody at it."""
        empty = QueueView(name=name, paused=False, due=0, processing=0, lag=None, workers=0)
        return cls.of(next((queue for queue in queues if queue.name == name), empty))


class QueuesOut(BaseModel):
    items: list[QueueOut]


def _object(content: Json | None) -> dict[str, Any] | None:
    return None if content is None else dict(content)
