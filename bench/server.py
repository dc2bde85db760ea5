"""The PostgreSQL that everything is measured on, with its own counts of statements, buffers and CPU time."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]  # it ships no types
import psycopg
from psycopg.sql import SQL, Identifier

from hymical.adapters.embedded.account import server_account
from hymical.adapters.embedded.binaries import installed_version, programs_for
from hymical.entrypoints.bootstrap.database import migrate
from hymical.entrypoints.bootstrap.embedded import EmbeddedServer, embedded_server, temporary_data_folder

SETTINGS = {
    "shared_preload_libraries": "pg_stat_statements",
    # BEGIN and COMMIT are not counted
    "pg_stat_statements.track_utility": "off",
    "shared_buffers": "512MB",
    "max_wal_size": "8GB",
}
"""PostgreSQL's own; everything else is at its default, flushes to disk included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """What PostgreSQL did in between: statements, and pages that they touched."""

    statements: int
    buffers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Database:
    """A migrated database of its own for one measurement."""

    url: str

    def query(self, statement: str, *parameters: object) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.url, autocommit=True) as connection:
            return connection.execute(statement.encode(), parameters).fetchall()

    def execute(self, statement: str, *parameters: object) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(statement.encode(), parameters)

    def count_anew(self) -> None:
        self.query("SELECT pg_stat_statements_reset()")

    def counted(self, like: str = "%") -> Counted:
        """Since the last `count_anew`, of statements whose text is like this."""
        (row,) = self.query(
            "SELECT coalesce(sum(calls), 0), coalesce(sum(shared_blks_hit + shared_blks_read), 0)"
            " FROM pg_stat_statements WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database())"
            " AND query LIKE %s AND query NOT LIKE '%%pg_stat_statements%%'",
            like,
        )
        return Counted(statements=int(row[0]), buffers=int(row[1]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    embedded: EmbeddedServer
    programs: Path
    _numbers: Iterator[int]

    @contextmanager
    def database(self) -> Iterator[Database]:
        """A new one, with nothing left to flush of those before; it is dropped at the end."""
        name = f"bench_{next(self._numbers)}"
        with psycopg.connect(self.embedded.url(), autocommit=True) as connection:
            connection.execute(SQL("CREATE DATABASE {}").format(Identifier(name)))
            migrate(self.embedded.url(name))
            database = Database(url=self.embedded.url(name))
            database.execute("CREATE EXTENSION pg_stat_statements")
            connection.execute("CHECKPOINT")
            try:
                yield database
            finally:
                connection.execute(SQL("DROP DATABASE {} WITH (FORCE)").format(Identifier(name)))

    def cpu_seconds(self) -> float:
        """Of all its processes, also of those that have ended."""
        postmaster = psutil.Process(self.embedded.pid)
        total: float = _own(postmaster) + float(sum(postmaster.cpu_times()[2:4]))
        for child in postmaster.children():
            try:
                total += _own(child)
            except psutil.NoSuchProcess:
                continue
        return total

    def run(self, program: str, *arguments: str, url: str, options: str) -> str:
        """One of PostgreSQL's own programs, to its end; what it printed."""
        ended = subprocess.run(
            [self.programs / program, *arguments, url],
            env={"PGOPTIONS": options},
            capture_output=True,
            text=True,
            check=False,
        )
        if ended.returncode != 0:
            raise RuntimeError(ended.stderr)
        return ended.stdout


@contextmanager
def running() -> Iterator[Server]:
    with (
        temporary_data_folder("hymical-bench-") as data,
        embedded_server(data, settings=SETTINGS) as embedded,
    ):
        yield Server(embedded=embedded, programs=programs_for(server_account()), _numbers=count(1))


def described() -> dict[str, str]:
    return {"version": installed_version(), **SETTINGS}


def cpu_seconds(pid: int) -> float:
    """Of one process."""
    return _own(psutil.Process(pid))


def megabytes(pid: int) -> float:
    """Resident memory of one process."""
    return float(psutil.Process(pid).memory_info().rss) / 2**20


def _own(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)
