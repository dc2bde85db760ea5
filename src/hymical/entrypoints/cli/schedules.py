"""`hymical schedules` and `hymical run`: what a person does with schedules."""

import json
from typing import TYPE_CHECKING

import click

from hymical.domain.instants import rfc3339
from hymical.entrypoints.cli.jobs import follow, tell_end
from hymical.entrypoints.cli.options import as_json
from hymical.entrypoints.cli.outcome import with_container

if TYPE_CHECKING:
    from hymical.application.schedules import SchedulesView, ScheduleView
    from hymical.domain.ids import JobId
    from hymical.entrypoints.bootstrap.container import Container
    from hymical.ports.jobs import JobView

_name = click.argument("name")


@click.group()
def schedules() -> None:
    """List, pause and resume schedules."""


@schedules.command("list")
@as_json
def list_(*, as_json: bool) -> None:
    """List schedules with their next and last ticks."""
    view = with_container(lambda container: container.list_schedules()())
    if as_json:
        print(json.dumps(_shown(view)))
        return
    for one in view.schedules:
        print(_line(one))
    if view.schedules and not view.schedulers:
        print("no scheduler is alive: nothing is run until one is started, with `hymical scheduler`")


@schedules.command()
@_name
@as_json
def pause(name: str, *, as_json: bool) -> None:
    """Let a schedule's ticks pass until it is resumed."""
    _change(name, "pause_schedule", as_json=as_json)


@schedules.command()
@_name
@as_json
def resume(name: str, *, as_json: bool) -> None:
    """Go on with a schedule, from its next tick."""
    _change(name, "resume_schedule", as_json=as_json)


@click.command()
@click.argument("name", metavar="SCHEDULE")
@click.option("--wait", is_flag=True, help="Print its progress until it has ended; it failed: exit code 1.")
@as_json
def run(name: str, *, wait: bool, as_json: bool) -> None:
    """Run a schedule once, now. A worker of its queue does it."""

    async def enqueued(container: "Container") -> "JobId":
        return await container.run_schedule()(name)

    async def ended(container: "Container") -> "JobView":
        return await follow(container, await container.run_schedule()(name), after=0, as_json=as_json)

    if wait:
        tell_end(with_container(ended), as_json=as_json)
    else:
        job_id = with_container(enqueued)
        print(json.dumps({"job_id": job_id}) if as_json else f"{job_id} is queued")


def _change(name: str, use_case: str, *, as_json: bool) -> None:
    async def changed(container: "Container") -> "SchedulesView":
        await container.providers[use_case]()(name)
        return await container.list_schedules()()

    view = with_container(changed)
    for one, shown in zip(view.schedules, _shown(view)["items"], strict=True):
        if one.schedule.name == name:
            print(json.dumps(shown) if as_json else _line(one))


def _line(one: "ScheduleView") -> str:
    if one.paused_at is not None:
        comes = "paused"
    elif one.overdue_since is not None:
        comes = f"overdue since {rfc3339(one.overdue_since)}"
    else:
        comes = f"next {rfc3339(one.next)}" if one.next else "never again"
    ran = f"  last {rfc3339(one.last.due_at)} {one.last.job_id}" if one.last else ""
    how = f" {one.job.state}" if one.job else ""
    return f"{one.schedule.name}  {one.schedule.rule}  {one.schedule.zone}  {comes}{ran}{how}"


def _shown(view: "SchedulesView") -> dict[str, list[object]]:
    from hymical.entrypoints.api.schemas.schedules import SchedulesOut  # noqa: PLC0415

    shown: dict[str, list[object]] = SchedulesOut.of(view).model_dump(mode="json")
    return shown
