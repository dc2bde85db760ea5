"""Jobs with their events, what people do with them, and queues."""

from typing import Annotated, Any

from litestar import MediaType, Request, Response, Router, get, post
from litestar.background_tasks import BackgroundTask
from litestar.datastructures import State
from litestar.di import NamedDependency
from litestar.openapi import ResponseSpec
from litestar.params import HeaderParameter, QueryParameter
from litestar.response import Stream

from hymical.application.jobs import (
    AnswerQuestion,
    CancelJob,
    EnqueueJob,
    ListJobs,
    ListQueues,
    PauseQueue,
    ResumeQueue,
    RetryJob,
    ShowJob,
)
from hymical.application.progress import ListEvents
from hymical.domain.errors import InvalidValue, NotFound
from hymical.domain.ids import JobId
from hymical.domain.jobs import JobState, Priority, is_name
from hymical.domain.keys import Key
from hymical.entrypoints.api.browsers import prefers
from hymical.entrypoints.api.pages import Cursor, Limit, Page, checked_cursor, checked_id, page_of
from hymical.entrypoints.api.provide import use_cases
from hymical.entrypoints.api.schemas.jobs import (
    AnswerIn,
    EnqueuedOut,
    EventOut,
    JobIn,
    JobOut,
    QueueOut,
    QueuesOut,
)
from hymical.entrypoints.jobs.registry import JobRegistry
from hymical.ports.jobs import JobFilter

_EVENT_STREAM = "text/event-stream"
_HIGHEST = 2**31 - 1


@get("/jobs", summary="List jobs, the newest first")
async def list_jobs(
    list_jobs: NamedDependency[ListJobs],
    queue: str | None = None,
    type: str | None = None,
    # a plain `state` would be the application's, and an enumeration here would be refused under this name
    job_state: Annotated[str | None, QueryParameter(name="state", schema_extra={"enum": [*JobState]})] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Page[JobOut]:
    which = JobFilter(
        queue=_checked_name("queue", queue), type=_checked_name("type", type), state=_checked_state(job_state)
    )
    found = await list_jobs(which, before=checked_cursor(cursor), limit=limit + 1)
    return page_of(found, limit=limit, shown=JobOut.of, id_of=lambda job: job.id)


@post("/jobs", status_code=202, summary="Queue a job; a worker of its queue runs it")
async def enqueue_job(
    data: JobIn,
    job_registry: NamedDependency[JobRegistry],
    enqueue_job: NamedDependency[EnqueueJob],
    show_job: NamedDependency[ShowJob],
) -> EnqueuedOut:
    job_registry.check(data.type, data.payload)
    enqueued = await enqueue_job(
        data.type,
        data.payload,
        run_at=data.run_at,
        unique_key=data.unique_key,
        priority=None if data.priority is None else Priority(data.priority),
    )
    return EnqueuedOut.showing(await show_job(enqueued.job_id), duplicate=enqueued.duplicate)


@get("/jobs/{job_id:str}", summary="Show a job, with the question that it asks")
async def show_job(job_id: str, show_job: NamedDependency[ShowJob]) -> JobOut:
    return JobOut.of(await show_job(_id(job_id)))


@get(
    "/jobs/{job_id:str}/events",
    summary="Follow a job's events, or list them",
    description=(
        "Server-sent events, unless the Accept header prefers application/json: every event from the first, or"
        " behind Last-Event-ID, then live, a comment at least every 15 seconds, and `event: end` with the state in"
        " which the job ended. A stream that ends without it was cut off: come back with Last-Event-ID."
    ),
    responses={200: ResponseSpec(Page[EventOut], description="The events, as a stream or as a page.")},
)
async def follow_events(
    job_id: str,
    request: Request[Any, Any, Any],
    state: State,
    show_job: NamedDependency[ShowJob],
    list_events: NamedDependency[ListEvents],
    limit: Limit = 50,
    cursor: Cursor = None,
    last_event_id: Annotated[
        str | None,
        HeaderParameter(name="Last-Event-ID", description="The `id` of the last event of a stream before."),
    ] = None,
) -> Response[Any]:
    job = await show_job(_id(job_id))
    accept = ",".join(request.headers.getall("accept", []))
    if prefers(MediaType.JSON, accept, over=[_EVENT_STREAM]):
        after = _number("cursor", cursor, most=_HIGHEST)
        events = await list_events(job.id, after=after, limit=limit + 1)
        page = page_of(events, limit=limit, shown=EventOut.of, id_of=lambda event: str(event.number))
        return Response(page, headers={"vary": "Accept"})
    after = _number("Last-Event-ID", last_event_id, most=job.event_count)
    frames = state.job_feeds.follow(job, after)
    return Stream(
        frames,
        media_type=_EVENT_STREAM,
        # nginx would hold events back until it has a page of them
        headers={"cache-control": "no-store", "x-accel-buffering": "no", "vary": "Accept"},
        # a reader that leaves while it is being written to leaves the stream behind as it is
        background=BackgroundTask(frames.aclose),
    )


@post("/jobs/{job_id:str}/answer", status_code=200, summary="Answer what a job asks; it goes on")
async def answer_job(
    job_id: str,
    data: AnswerIn,
    request: Request[Any, Key, Any],
    answer_question: NamedDependency[AnswerQuestion],
) -> JobOut:
    job = await answer_question(_id(job_id), data.answer, by=request.auth.id, key=data.question)
    return JobOut.of(job)


@post("/jobs/{job_id:str}/cancel", status_code=200, summary="Cancel a job that has not ended")
async def cancel_job(job_id: str, cancel_job: NamedDependency[CancelJob]) -> JobOut:
    return JobOut.of(await cancel_job(_id(job_id)))


@post("/jobs/{job_id:str}/retry", status_code=200, summary="Run a failed job again")
async def retry_job(job_id: str, retry_job: NamedDependency[RetryJob]) -> JobOut:
    return JobOut.of(await retry_job(_id(job_id)))


@get("/queues", summary="List queues that hold jobs, are paused or have workers")
async def list_queues(list_queues: NamedDependency[ListQueues]) -> QueuesOut:
    return QueuesOut(items=[QueueOut.of(queue) for queue in await list_queues()])


@post("/queues/{name:str}/pause", status_code=200, summary="Start no more jobs of a queue")
async def pause_queue(
    name: str, pause_queue: NamedDependency[PauseQueue], list_queues: NamedDependency[ListQueues]
) -> QueueOut:
    await pause_queue(_queue(name))
    return QueueOut.named(name, await list_queues())


@post("/queues/{name:str}/resume", status_code=200, summary="Start jobs of a queue again")
async def resume_queue(
    name: str, resume_queue: NamedDependency[ResumeQueue], list_queues: NamedDependency[ListQueues]
) -> QueueOut:
    await resume_queue(_queue(name))
    return QueueOut.named(name, await list_queues())


def _id(text: str) -> JobId:
    return JobId(checked_id("job", text))


def _queue(text: str) -> str:
    if not is_name(text):
        raise NotFound("queue", text)
    return text


def _checked_name(field: str, text: str | None) -> str | None:
    if text is not None and not is_name(text):
        raise InvalidValue(field, "must be a name")
    return text


def _checked_state(text: str | None) -> JobState | None:
    if text is None:
        return None
    try:
        return JobState(text)
    except ValueError:
        raise InvalidValue("state", f"must be one of {', '.join(JobState)}") from None


def _number(field: str, text: str | None, *, most: int) -> int:
    """The number of an event that was given out; without one, that before the first."""
    if text is None:
        return 0
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(_HIGHEST)) and int(text) <= most):
        raise InvalidValue(field, "must be the number of an event of this job")
    return int(text)


management = Router(
    "/",
    route_handlers=[
        enqueue_job,
        list_jobs,
        show_job,
        follow_events,
        answer_job,
        cancel_job,
        retry_job,
        list_queues,
        pause_queue,
        resume_queue,
    ],
    dependencies=use_cases(
        "job_registry",
        "enqueue_job",
        "list_jobs",
        "show_job",
        "list_events",
        "answer_question",
        "cancel_job",
        "retry_job",
        "list_queues",
        "pause_queue",
        "resume_queue",
    ),
)
