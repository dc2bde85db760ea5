"""Servers that a killed or interrupted owner left running."""

import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import psutil  # type: ignore[import-untyped]  # it ships no types

_PATIENCE_SECONDS = 15.0
_LOOK_AGAIN_SECONDS = 0.01


def end_servers_on(cluster: Path) -> None:
    """Ends every server on a cluster, known by its name and its working directory, not by a noted pid."""
    found = [
        process
        for process in psutil.process_iter(["name", "cwd", "ppid"])
        if process.info["name"] == "postgres" and process.info["cwd"] == str(cluster)
    ]
    pids = {process.pid for process in found}
    for process in found:
        if process.info["ppid"] not in pids:
            with suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGINT)
    if not _all_end(found):
        for process in found:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        _all_end(found)


def end_initdb_on(cluster: Path) -> None:
    """Ends an `initdb` that makes this cluster, and what it has started."""
    found = [
        process
        for process in psutil.process_iter(["cmdline"])
        if f"--pgdata={cluster}" in (process.info["cmdline"] or ())
    ]
    for process in found:
        with suppress(psutil.NoSuchProcess):
            process.terminate()
    _all_end(found)


def _all_end(processes: Sequence[psutil.Process]) -> bool:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while any(map(_lives, processes)):
        if time.monotonic() > deadline:
            return False
        time.sleep(_LOOK_AGAIN_SECONDS)
    return True


def _lives(process: psutil.Process) -> bool:
    # a container's first process may never collect its dead
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
