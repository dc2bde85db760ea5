"""`hymical up`: one process of each role, which end together."""

import os
import signal
import sys
import threading
from collections.abc import Collection, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from queue import SimpleQueue
from types import FrameType

from hymical.entrypoints.processes import ProcessEnded, RoleProcess, role_process


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """A command of `hymical` that keeps running, and what it says once it is ready."""

    name: str
    arguments: tuple[str, ...]
    ready: str


DELIVERIES = Role(name="worker", arguments=("worker",), ready="worker ready")
SCHEDULES = Role(name="scheduler", arguments=("scheduler",), ready="scheduler ready")


def api(host: str, port: int) -> Role:
    return Role(name="api", arguments=("serve", "--host", host, "--port", str(port)), ready="Hymical API on ")


def jobs(queues: Collection[str]) -> Role:
    names = [argument for queue in sorted(queues) for argument in ("--queue", queue)]
    return Role(name="jobs", arguments=("worker", *names), ready="worker ready")


def run_all(roles: Sequence[Role]) -> int:
    """Runs them with this process's settings until SIGTERM or SIGINT, or until one of them ends; the exit code."""
    ended = SimpleQueue[RoleProcess | None]()

    def stop(_number: int, _frame: FrameType | None) -> None:
        ended.put(None)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    settings = {name: value for name, value in os.environ.items() if name.upper().startswith("FORMS_")}
    try:
        with ExitStack() as stack:
            for role in roles:
                started = stack.enter_context(
                    role_process(role.name, role.arguments, settings, ready=role.ready, show=show)
                )
                threading.Thread(target=_await_end, args=(started, ended), daemon=True).start()
            first = ended.get()
            if first is None:
                return 0
            print(
                f"hymical: {first.role} ended with code {first.process.returncode}; the others are stopped",
                file=sys.stderr,
                flush=True,
            )
            return 1
    except ProcessEnded as error:
        print(f"hymical: {error.role} did not start, see above", file=sys.stderr)
        return 1


def show(role: str, line: str) -> None:
    """Prints a line with the role that it came from."""
    print(f"{role:>9} | {line}", flush=True)


def _await_end(started: RoleProcess, ended: SimpleQueue[RoleProcess | None]) -> None:
    started.process.wait()
    ended.put(started)
