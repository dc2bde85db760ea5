"""The server's process: a child of its owner that does not outlive it."""

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from hymical.adapters.embedded.account import ServerAccount
from hymical.adapters.embedded.errors import ServerFailed
from hymical.adapters.embedded.places import SOCKET, Place

StopMode = Literal["fast", "immediate"]
"""`fast` ends sessions and writes a checkpoint; `immediate` is a crash, and the next start recovers."""

_READY_SECONDS = 60.0
_STOP_SECONDS = 15.0
_LOOK_AGAIN_SECONDS = 0.01
# waits for a line from the owner; when its end of the pipe closes without one, the owner is dead
_WATCH = 'read -r farewell || kill -INT "$1"'


@dataclass(slots=True, kw_only=True)
class Postmaster:
    programs: Path
    place: Place
    account: ServerAccount
    options: Sequence[str]
    durable: bool
    _server: subprocess.Popen[bytes] | None = field(default=None, init=False)
    _watcher: subprocess.Popen[bytes] | None = field(default=None, init=False)

    @property
    def pid(self) -> int | None:
        return None if self._server is None else self._server.pid

    def start(self) -> None:
        """Starts the server, and returns when it takes connections.

        Raises:
            ServerFailed: it did not get that far.
        """
        if self._server is not None:
            return
        if not (self.place.cluster / "PG_VERSION").exists():
            self._make_cluster()
        self._clear_the_way()
        self.place.open_sockets(self.account)
        descriptor = os.open(self.place.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "ab") as log:
            already_logged = log.tell()
            command = [str(self.programs / "postgres"), "-D", str(self.place.cluster), *self.options]
            self._server = self.account.start(command, output=log)
        self._watcher = self.account.start(
            ["/bin/sh", "-c", _WATCH, "sh", str(self._server.pid)], stdin=subprocess.PIPE
        )
        if not self._gets_ready(self._server):
            self.stop("immediate")
            said = self.place.log.read_bytes()[already_logged:].decode(errors="replace")
            raise ServerFailed("PostgreSQL did not start", said)

    def stop(self, mode: StopMode = "fast") -> None:
        """Stops the server and waits until it is gone; after a bound it is told less kindly."""
        if self._server is None:
            return
        kindly = [signal.SIGINT] if mode == "fast" else []
        for sign in (*kindly, signal.SIGQUIT, signal.SIGKILL):
            self._server.send_signal(sign)
            with suppress(subprocess.TimeoutExpired):
                self._server.wait(_STOP_SECONDS)
                break
        self._server.wait()
        self._server = None
        self._dismiss_watcher()
        self._clear_the_way()
        self.place.close_sockets()

    def _dismiss_watcher(self) -> None:
        if self._watcher is not None:
            self._watcher.communicate(b"farewell\n")
            self._watcher = None

    def _make_cluster(self) -> None:
        """Makes the cluster whole or not at all: a killed `initdb` leaves nothing that looks like one."""
        cluster = self.place.cluster
        for unfinished in cluster.parent.glob(f"{cluster.name}.new-*"):
            shutil.rmtree(unfinished, ignore_errors=True)
        incoming = Path(tempfile.mkdtemp(prefix=f"{cluster.name}.new-", dir=cluster.parent))
        self.account.take(incoming)
        command = [
            str(self.programs / "initdb"),
            f"--pgdata={incoming}",
            *("--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C.UTF-8"),
            *("--set=timezone=UTC", "--set=log_timezone=UTC", "--no-instructions"),
            *(() if self.durable else ("--no-sync",)),
        ]
        try:
            with self.account.start(command, output=subprocess.PIPE) as initdb:
                said, _ = initdb.communicate()
        except BaseException:
            # also while it is being started, when nobody holds it yet: in a session of its own, it would go on
            # while its folder is being removed
            from hymical.adapters.embedded.leftovers import end_initdb_on  # noqa: PLC0415  # as below

            end_initdb_on(incoming)
            raise
        if initdb.returncode != 0:
            raise ServerFailed("initdb failed", said.decode(errors="replace"))
        incoming.rename(cluster)

    def _clear_the_way(self) -> None:
        """Ends what an earlier owner left running, and removes the marks of what no longer runs.

        PostgreSQL itself takes any living process with the noted pid for a server.
        """
        from hymical.adapters.embedded.leftovers import end_servers_on  # noqa: PLC0415  # needs the wheel's psutil

        end_servers_on(self.place.cluster)
        socket = self.place.sockets / SOCKET
        for mark in (self.place.cluster / "postmaster.pid", socket, socket.with_name(f"{SOCKET}.lock")):
            mark.unlink(missing_ok=True)

    def _gets_ready(self, server: subprocess.Popen[bytes]) -> bool:
        deadline = time.monotonic() + _READY_SECONDS
        while server.poll() is None and time.monotonic() < deadline:
            if _noted_as_ready(self.place.cluster / "postmaster.pid", server.pid):
                return True
            time.sleep(_LOOK_AGAIN_SECONDS)
        return False


def _noted_as_ready(pid_file: Path, pid: int) -> bool:
    try:
        lines = pid_file.read_text().splitlines()
    except FileNotFoundError:
        return False
    return lines[:1] == [str(pid)] and lines[-1].strip() == "ready"
