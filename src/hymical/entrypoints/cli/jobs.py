"""`hymical jobs`: what a person does with jobs."""

import json
import sys
from contextlib import aclosing
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from hymical.domain.ids import JobId
from hymical.domain.instants import rfc3339
from hymical.domain.jobs import JobState
from hymical.entrypoints.cli.options import a_json_object, an_id, as_json, paged
from hymical.entrypoints.cli.outcome import FAILED, run_or_fail, settings_or_fail, with_container
from hymical.entrypoints.cli.output import print_fields, print_one, print_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hymical.application.progress import JobNews
    from hymical.entrypoints.api.schemas.jobs import JobOut
    from hymical.entrypoints.bootstrap.container import Container
    from hymical.entrypoints.jobs.matrix import TypeRow
    from hymical.ports.jobs import JobView

_BY = "cli"
"""Who answered, where no key was used."""

_id = click.argument("job_id", metavar="ID", type=an_id)


@click.group()
def jobs() -> None:
    """Queue, list, show, watch, answer, cancel and retry jobs."""


@jobs.command("list")
@click.option("--queue", help="Only those of a queue.")
@click.option("--type", help="Only those of a type.")
@click.option(
    "--state", type=click.Choice([state.value for state in JobState]), help="Only those in a state."
)
@paged
@as_json
def list_(
    queue: str | None,
    type: str | None,
    state: str | None,
    limit: int,
    cursor: str | None,
    *,
    as_json: bool,
) -> None:
    """List jobs, the newest first."""
    from hymical.ports.jobs import JobFilter  # noqa: PLC0415

    which = JobFilter(queue=queue, type=type, state=JobState(state) if state else None)
    found = with_container(lambda container: container.list_jobs()(which, before=cursor, limit=limit + 1))
    print_rows(found, _shown, line, limit=limit, as_json=as_json)


@jobs.command()
@_id
@as_json
def show(job_id: str, *, as_json: bool) -> None:
    """Show a job, with the question that it asks."""
    job = with_container(lambda container: container.show_job()(JobId(job_id)))
    print_fields(_shown(job), as_json=as_json)


@jobs.command(short_help="List the types of jobs that this build knows.")
@click.option("--markdown", is_flag=True, help="Print a table, as it stands in the guide.")
@as_json
def types(*, markdown: bool, as_json: bool) -> None:
    """List the types of jobs that this build knows, with their queues and schedules."""
    from hymical.entrypoints.jobs.matrix import as_markdown, type_rows  # noqa: PLC0415
    from hymical.entrypoints.jobs.registry import discover  # noqa: PLC0415
    from hymical.entrypoints.jobs.schedules import declared  # noqa: PLC0415

    modules = settings_or_fail().job_modules

    async def found() -> "Sequence[TypeRow]":
        return type_rows(discover(modules), declared(modules))

    rows = run_or_fail(found())
    if as_json:
        print(json.dumps([asdict(row) for row in rows]))
    elif markdown:
        print(as_markdown(rows))
    else:
        for row in rows:
            print(f"{row.queue:<12}  {row.type:<28}  {', '.join(row.schedules)}")


@jobs.command()
@click.argument("type")
@click.argument("payload", type=a_json_object, default="{}")
@click.option(
    "--unique-key", help="Where a job of this type with this key has not ended, that one is the answer."
)
@as_json
def enqueue(type: str, payload: dict[str, object], unique_key: str | None, *, as_json: bool) -> None:
    """Queue a job of TYPE; PAYLOAD is what the type takes, in JSON."""
    from hymical.entrypoints.api.schemas.jobs import EnqueuedOut  # noqa: PLC0415

    async def queued(container: "Container") -> EnqueuedOut:
        container.job_registry().check(type, payload)
        enqueued = await container.enqueue_job()(type, payload, unique_key=unique_key)
        return EnqueuedOut.showing(await container.show_job()(enqueued.job_id), duplicate=enqueued.duplicate)

    print_one(with_container(queued), line, as_json=as_json)


@jobs.command(short_help="Print a job's events until it has ended.")
@_id
@click.option("--after", default=0, type=click.IntRange(0), help="Only events behind the one of this number.")
@as_json
def watch(job_id: str, after: int, *, as_json: bool) -> None:
    """Print a job's events as they come, until it has ended; it failed or was cancelled: exit code 1."""
    tell_end(
        with_container(lambda container: follow(container, JobId(job_id), after=after, as_json=as_json)),
        as_json=as_json,
    )


@jobs.command()
@_id
@click.argument("answer")
@click.option("--question", help="The key of the question that is meant; it may not have been asked yet.")
@as_json
def answer(job_id: str, answer: str, question: str | None, *, as_json: bool) -> None:
    """Answer what a job asks; it goes on."""
    _print(
        with_container(
            lambda container: container.answer_question()(JobId(job_id), answer, by=_BY, key=question)
        ),
        as_json=as_json,
    )


@jobs.command()
@_id
@as_json
def cancel(job_id: str, *, as_json: bool) -> None:
    """Cancel a job that has not ended."""
    _print(with_container(lambda container: container.cancel_job()(JobId(job_id))), as_json=as_json)


@jobs.command()
@_id
@as_json
def retry(job_id: str, *, as_json: bool) -> None:
    """Run a failed job again."""
    _print(with_container(lambda container: container.retry_job()(JobId(job_id))), as_json=as_json)


async def follow(container: "Container", job_id: JobId, *, after: int, as_json: bool) -> "JobView":
    """Prints events behind `after` as they come, and why there are none to stderr; the job as it ended.

    Raises `NotFound`.
    """
    job, remarked = await container.show_job()(job_id), ""
    async with aclosing(container.watch_job()(job_id, after=after)) as watched:
        async for news in watched:
            _tell(news, as_json=as_json)
            job = news.job
            remark = await _remark(container, job)
            if remark not in {"", remarked}:
                print(remark, file=sys.stderr, flush=True)
            remarked = remark
    return job


async def _remark(container: "Container", job: "JobView") -> str:
    """What whoever waits for a job should know of it, if it does not run."""
    if job.question is not None:
        choices = f" ({' or '.join(job.question.choices)})" if job.question.choices else ""
        return f"it asks: {job.question.text}{choices}; answer with: hymical jobs answer {job.id} ANSWER"
    if job.state is not JobState.PENDING:
        return ""
    if job.error is not None:
        return f"it failed, and runs again at {rfc3339(job.run_at)}: {job.error}"
    for queue in await container.list_queues()():
        if queue.name == job.queue and queue.paused:
            return f"its queue is paused; resume it with: hymical queues resume {queue.name}"
        if queue.name == job.queue and queue.unserved:
            return f"no worker drains its queue; start one with: hymical worker --queue {queue.name}"
    return ""


def tell_end(job: "JobView", *, as_json: bool) -> None:
    """Prints how a job ended, and its result; exits with a code of its own unless it was completed."""
    if as_json:
        print(json.dumps(_ended(job)))
    else:
        result = f"  {json.dumps(job.result)}" if job.result is not None else ""
        print(f"{line(_shown(job))}{result}")
    if job.state is not JobState.COMPLETED:
        raise SystemExit(FAILED)


def _print(job: "JobView", *, as_json: bool) -> None:
    print_one(_shown(job), line, as_json=as_json)


def line(job: "JobOut") -> str:
    asks = f"  asks: {job.question.text}" if job.question else ""
    went_wrong = f"  {job.error}" if job.error else ""
    return f"{job.id}  {job.state:<10}  {job.queue}  {job.type}{asks}{went_wrong}"


def _tell(news: "JobNews", *, as_json: bool) -> None:
    from hymical.entrypoints.api.schemas.jobs import EventOut  # noqa: PLC0415

    for recorded in news.events:
        shown = EventOut.of(recorded).model_dump(mode="json", exclude_none=True)
        if as_json:
            print(json.dumps(shown), flush=True)
        else:
            message = f"  {json.dumps(shown['message'])}" if "message" in shown else ""
            print(
                f"{recorded.number}  {shown['at']}  {shown['step']}  {shown['status']}{message}", flush=True
            )


def _shown(job: "JobView") -> "JobOut":
    from hymical.entrypoints.api.schemas.jobs import JobOut  # noqa: PLC0415

    return JobOut.of(job)


def _ended(job: "JobView") -> dict[str, object]:
    from hymical.entrypoints.api.schemas.jobs import EndOut  # noqa: PLC0415

    return EndOut.of(job).model_dump(mode="json", exclude_none=True)
