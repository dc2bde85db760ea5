"""`hymical queues`: the queues of jobs."""

import json
from typing import TYPE_CHECKING

import click

from hymical.entrypoints.cli.outcome import UNUSABLE, fail, with_container

if TYPE_CHECKING:
    from hymical.ports.jobs import QueueView

_as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON, as the API answers.")


@click.group()
def queues() -> None:
    """List, pause and resume queues."""


@queues.command("list")
@_as_json
def list_(*, as_json: bool) -> None:
    """List queues that hold jobs, are paused or have workers."""
    found = with_container(lambda container: container.list_queues()())
    if as_json:
        print(json.dumps([_shown(queue) for queue in found]))
        return
    for queue in found:
        state = "paused" if queue.paused else "unserved" if queue.unserved else "active"
        print(
            f"{queue.name}  {state}  {queue.due} due  {queue.processing} processing  {queue.workers} workers"
        )


@queues.command()
@click.argument("name", metavar="QUEUE")
def pause(name: str) -> None:
    """Start no more jobs of a queue; what runs goes on."""
    check_name(name)
    with_container(lambda container: container.pause_queue()(name))
    print(f"{name} is paused")


@queues.command()
@click.argument("name", metavar="QUEUE")
def resume(name: str) -> None:
    """Start jobs of a queue again."""
    check_name(name)
    with_container(lambda container: container.resume_queue()(name))
    print(f"{name} is resumed")


def check_name(name: str) -> None:
    from hymical.domain.jobs import is_name  # noqa: PLC0415

    if not is_name(name):
        fail(f"{name!r} cannot be the name of a queue", code=UNUSABLE)


def _shown(queue: "QueueView") -> dict[str, object]:
    from hymical.entrypoints.api.schemas.jobs import QueueOut  # noqa: PLC0415

    return QueueOut.of(queue).model_dump(mode="json")
