"""Starting Hymical's own processes as children, for demo, dev and tests."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

_TO_STOP = 30.0


class ProcessEnded(Exception):
    """A child ended before it was ready; `said` is the end of what it printed."""

    def __init__(self, role: str, code: int, said: str) -> None:
        super().__init__(f"{role} ended with code {code}: {said}")
        self.role, self.code, self.said = role, code, said


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleProcess:
    """A running child, and the line with which it said that it is ready."""

    role: str
    process: subprocess.Popen[str]
    ready_line: str


def child_environment(variables: Mapping[str, str]) -> dict[str, str]:
    """This process's environment, where `variables` are all that there is of `FORMS_`."""
    inherited = {name: value for name, value in os.environ.items() if not name.upper().startswith("FORMS_")}
    return inherited | dict(variables)


@contextmanager
def role_process(
    role: str,
    arguments: tuple[str, ...],
    environment: Mapping[str, str],
    *,
    ready: str,
    show: Callable[[str, str], None],
) -> Iterator[RoleProcess]:
    """Runs `hymical {arguments}` from the line that contains `ready` until the block ends, then SIGTERM.

    `show` is called with the role and each line. The child ends with its parent, however that dies.

    Raises:
        ProcessEnded: it ended before it was ready.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", "hymical.entrypoints.tethered", *arguments],
        env=child_environment(environment) | {"PYTHONUNBUFFERED": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
        errors="replace",
    )
    with ExitStack() as stack:
        stack.callback(_stop, process)
        assert process.stdout is not None  # noqa: S101  a pipe, see above
        said: list[str] = []
        for line in process.stdout:
            show(role, line.rstrip("\n"))
            said.append(line)
            if ready in line:
                break
        else:
            raise ProcessEnded(role, process.wait(), "".join(said[-20:]).strip())
        reader = threading.Thread(target=_show_all, args=(role, process, show), daemon=True)
        reader.start()
        stack.callback(reader.join, _TO_STOP)
        stack.callback(_terminate, process)
        yield RoleProcess(role=role, process=process, ready_line=said[-1].strip())


def _show_all(role: str, process: subprocess.Popen[str], show: Callable[[str, str], None]) -> None:
    assert process.stdout is not None  # noqa: S101  a pipe, see above
    for line in process.stdout:
        show(role, line.rstrip("\n"))


def _terminate(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        process.terminate()


def _stop(process: subprocess.Popen[str]) -> None:
    _terminate(process)
    try:
        process.wait(_TO_STOP)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
