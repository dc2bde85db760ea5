"""`hymical queues`: the queues of jobs."""

import json
from typing import TYPE_CHECKING

import click

from hymical.entrypoints.cli.options import as_json
from hymical.entrypoints.cli.outcome import UNUSABLE, fail, with_container
from hymical.entrypoints.cli.output import print_one

if TYPE_CHECKING:
    from hymical.entrypoints.bootstrap.container import Container


@click.group()
def queues() -> None:
    """List, pause and resume queues."""


@queues.command("list")
@as_json
def list_(*, as_json: bool) -> None:
    """List queues that hold jobs, are paused or have workers."""
    from hymical.entrypoints.api.schemas.jobs import QueueOut, QueuesOut  # noqa: PLC0415

    found = with_container(lambda container: container.list_queues()())
    answer = QueuesOut(items=[QueueOut.of(queue) for queue in found])
    if as_json:
        print(json.dumps(answer.model_dump(mode="json")))
        return
    for queue in answer.items:
        state = "paused" if queue.paused else "unserved" if queue.unserved else "active"
        print(
            f"{queue.name}  {state}  {queue.due} due  {queue.processing} processing  {queue.workers} workers"
        )


@queues.command()
@click.argument("name", metavar="QUEUE")
@as_json
def pause(name: str, *, as_json: bool) -> None:
    """Start no more jobs of a queue; what runs goes on."""
    _change(name, "pause_queue", "paused", as_json=as_json)


@queues.command()
@click.argument("name", metavar="QUEUE")
@as_json
def resume(name: str, *, as_json: bool) -> None:
    """Start jobs of a queue again."""
    _change(name, "resume_queue", "resumed", as_json=as_json)


def check_name(name: str) -> None:
    from hymical.domain.jobs import is_name  # noqa: PLC0415

    if not is_name(name):
        fail(f"{name!r} cannot be the name of a queue", code=UNUSABLE)


def _change(name: str, use_case: str, done: str, *, as_json: bool) -> None:
    from hymical.entrypoints.api.schemas.jobs import QueueOut  # noqa: PLC0415

    check_name(name)

    async def changed(container: "Container") -> QueueOut:
        await container.providers[use_case]()(name)
        return QueueOut.named(name, await container.list_queues()())

    print_one(with_container(changed), lambda queue: f"{queue.name} is {done}", as_json=as_json)
