"""The one PostgreSQL server of a test run, and the databases of its tests."""

import itertools
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Client, Listener
from pathlib import Path
from typing import Protocol, assert_never
from urllib.parse import quote, urlsplit

import psycopg
from psycopg import sql

from tests.server_choice import Choice, Container, Embedded, Given

CONTAINER_IMAGE = "postgres:18"
_ENGINE_TIMEOUT_SECONDS = 3
_DATA_PREFIX = "hymical-test-"
_PLENTY_BYTES = 2 * 1024**3
_STARTING_SECONDS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A server that runs, as seen by the process of a test."""

    url: str
    """Of a database in which others may be created and dropped."""
    prefix: str
    """Of the names of this run's databases."""
    template: str
    """A migrated database to copy, which nobody is connected to."""

    def url_of(self, database: str) -> str:
        return urlsplit(self.url)._replace(path=f"/{quote(database)}").geturl()


class ServerSource(Protocol):
    def server(self) -> Server:
        """The run's one server; the first call starts it."""


def docker_answers() -> bool:
    """Whether testcontainers finds a Docker engine here."""
    # apart from the tests' own process: a client that finds none leaves its socket open
    asking = (
        "from testcontainers.core.docker_client import DockerClient\n"
        f"DockerClient(timeout={_ENGINE_TIMEOUT_SECONDS}).client.ping()"
    )
    return subprocess.run([sys.executable, "-c", asking], check=False, capture_output=True).returncode == 0


@dataclass(slots=True)
class RunServer:
    """The server of a run without workers, or of the process that controls them; started on first use."""

    choice: Choice
    _open: ExitStack = field(default_factory=ExitStack, init=False)
    _server: Server | None = field(default=None, init=False)
    _failure: Exception | None = field(default=None, init=False)

    def server(self) -> Server:
        if self._failure is not None:
            raise self._failure
        if self._server is None:
            try:
                self._server = self._open.enter_context(_prepared(self.choice))
            except Exception as failure:
                self._failure = failure
                raise
        return self._server

    def close(self) -> None:
        self._open.close()


class ServerDesk:
    """Answers workers, one after the other, from a thread of the process that controls them."""

    def __init__(self, source: ServerSource) -> None:
        self._source = source
        self._listener: Listener | None = None
        self._thread = threading.Thread(target=self._answer, name="server desk", daemon=True)
        self._key = secrets.token_bytes(32)

    def address(self) -> tuple[str, str]:
        """What a worker needs to ask, as text; the first call opens the desk."""
        if self._listener is None:
            self._listener = Listener(family="AF_UNIX", backlog=128, authkey=self._key)
            self._thread.start()
        return str(self._listener.address), self._key.hex()

    def close(self) -> None:
        if self._listener is not None:
            with Client(self._listener.address, authkey=self._key) as connection:
                connection.send("close")
            self._thread.join()
            self._listener.close()

    def _answer(self) -> None:
        assert self._listener is not None
        while True:
            try:
                with self._listener.accept() as connection:
                    if connection.recv() == "close":
                        return
                    connection.send(self._answered())
            except (EOFError, OSError):
                # a worker that died while it asked
                continue

    def _answered(self) -> Server | str:
        try:
            return self._source.server()
        except Exception as failure:  # noqa: BLE001  # the worker that asked is to report it
            return f"{type(failure).__name__}: {failure}"


@dataclass(slots=True)
class WorkersServer:
    """The run's server as a worker gets it: by asking the process that controls it."""

    address: str
    key: str
    _server: Server | None = field(default=None, init=False)

    def server(self) -> Server:
        if self._server is None:
            with Client(self.address, authkey=bytes.fromhex(self.key)) as connection:
                connection.send("server")
                answer = connection.recv()
            if not isinstance(answer, Server):
                raise RuntimeError(f"the run's database server did not start: {answer}")
            self._server = answer
        return self._server


class Databases:
    """Makes databases for the tests of one process."""

    def __init__(self, source: ServerSource) -> None:
        self._source = source
        self._numbers = itertools.count(1)
        self._admin: psycopg.Connection | None = None

    @contextmanager
    def migrated(self) -> Iterator[str]:
        """The url of a database at the newest schema, dropped afterwards."""
        # without flushes, copying files takes two thirds of the time of copying through the log
        with self._fresh(
            sql.SQL("TEMPLATE {} STRATEGY file_copy").format(sql.Identifier(self._source.server().template))
        ) as url:
            yield url

    @contextmanager
    def empty(self) -> Iterator[str]:
        """The url of a database without any table, dropped afterwards."""
        with self._fresh(sql.SQL("TEMPLATE template0 STRATEGY file_copy").format()) as url:
            yield url

    def close(self) -> None:
        if self._admin is not None:
            self._admin.close()

    @contextmanager
    def _fresh(self, how: sql.Composed) -> Iterator[str]:
        server = self._source.server()
        if self._admin is None:
            self._admin = psycopg.connect(server.url, autocommit=True)
        worker = os.environ.get("PYTEST_XDIST_WORKER", "main")
        name = f"{server.prefix}{worker}_{next(self._numbers)}"
        self._admin.execute(sql.SQL("CREATE DATABASE {} {}").format(sql.Identifier(name), how))
        try:
            yield server.url_of(name)
        finally:
            self._let_sessions_end(self._admin, name)
            self._admin.execute(_dropping(name))

    @staticmethod
    def _let_sessions_end(admin: psycopg.Connection, database: str) -> None:
        # a closed connection's session ends a moment later, and DROP DATABASE looks again only after 0.1 s
        for _ in range(20):
            sessions = admin.execute("SELECT count(*) FROM pg_stat_activity WHERE datname = %s", [database])
            if sessions.fetchone() == (0,):
                return
            time.sleep(0.001)


@contextmanager
def _prepared(choice: Choice) -> Iterator[Server]:
    prefix = f"hymical_test_{secrets.token_hex(4)}_"
    with _running(choice) as url, psycopg.connect(url, autocommit=True) as admin:
        server = Server(url=url, prefix=prefix, template=f"{prefix}template")
        try:
            admin.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(server.template)))
            _migrate(server.url_of(server.template))
            yield server
        finally:
            # a worker that crashed leaves its own behind
            for (name,) in admin.execute(
                "SELECT datname FROM pg_database WHERE starts_with(datname, %s)", [prefix]
            ):
                admin.execute(_dropping(name))


def _migrate(database_url: str) -> None:
    from hymical.adapters.postgres.schema import migrate  # noqa: PLC0415  # unit tests do without it

    migrate(database_url)


def _dropping(database: str) -> sql.Composed:
    return sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(database))


@contextmanager
def _running(choice: Choice) -> Iterator[str]:
    match choice:
        case Given(url=url):
            yield url
        case Container():
            with _container() as url:
                yield url
        case Embedded():
            with _embedded() as url:
                yield url
        case _:
            assert_never(choice)


@contextmanager
def _container() -> Iterator[str]:
    from testcontainers.community.postgres import PostgresContainer  # noqa: PLC0415  # slow, and rarely needed

    container = (
        PostgresContainer(CONTAINER_IMAGE, username="postgres", password=secrets.token_hex(16), driver=None)
        .with_env("POSTGRES_INITDB_ARGS", "--encoding=UTF8 --locale=C.UTF-8")
        .with_command("postgres -c fsync=off -c full_page_writes=off -c max_connections=200")
    )
    with container:
        yield container.get_connection_url()


@contextmanager
def _embedded() -> Iterator[str]:
    from hymical.adapters.embedded.server import (  # noqa: PLC0415  # an extra, rarely missing
        embedded_server,
        temporary_data_folder,
    )

    parent = _folder_of_data()
    _sweep(parent)
    with (
        temporary_data_folder(_DATA_PREFIX, parent) as folder,
        embedded_server(folder, durable=False) as server,
    ):
        yield server.url()


def _folder_of_data() -> Path:
    """Memory, where a database is made ten times as fast, if there is plenty."""
    memory = Path("/dev/shm")  # noqa: S108  # only a parent for mkdtemp
    if memory.is_dir() and shutil.disk_usage(memory).free > _PLENTY_BYTES:
        return memory
    return Path(tempfile.gettempdir())


def _sweep(parent: Path) -> None:
    """Removes what killed runs left."""
    from hymical.adapters.embedded.errors import AlreadyOwned  # noqa: PLC0415  # as above
    from hymical.adapters.embedded.server import discard_data  # noqa: PLC0415  # as above

    for folder in parent.glob(f"{_DATA_PREFIX}*"):
        # another run may be using it, or removing it right now
        with suppress(AlreadyOwned, OSError):
            found = folder.stat()
            # a younger one may be about to get its lock
            if found.st_uid == os.geteuid() and found.st_mtime < time.time() - _STARTING_SECONDS:
                discard_data(folder)
                shutil.rmtree(folder)
