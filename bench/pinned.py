"""Claiming and settling while an old transaction keeps vacuum from removing anything, beside the same without it."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import psycopg

from bench import backlog
from bench.claims import queue
from bench.figures import Effort, Figure, Limit, Target
from bench.server import Database, Server

_BATCH = 64
_LEAST_OF_FREE = Target(at_least=0.8)
_LEAST_AT_THE_END = Target(at_least=0.8)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Window:
    """`pages` are those touched for each delivery."""

    per_second: float
    pages: float


def measure(server: Server, effort: Effort) -> list[Figure]:
    """Rounds are windows here, one after the other."""
    due, windows, window_seconds = effort.choose((1_000_000, 12, 10.0), (60_000, 3, 2.0))
    with server.database() as database:
        backlog.add_form(database)
        _load(database, due)
        free = asyncio.run(_measured(database, windows, window_seconds))
        _load(database, due)
        with _old_transaction(database):
            pinned = asyncio.run(_measured(database, windows, window_seconds))
    # where the backlog ended early in one of them, only what both have can be compared
    both = min(len(free), len(pinned))
    free, pinned = free[:both], pinned[:both]
    quarter = max(1, both // 4)
    name = f"from {due:,}, in windows of {window_seconds:g} s"
    return [
        Figure(
            group="pinned",
            name=name,
            unit="deliveries/s",
            rounds=tuple(one.per_second for one in pinned),
            limit=Limit("without it", tuple(one.per_second for one in free)),
            target=_LEAST_OF_FREE,
        ),
        Figure(
            group="pinned",
            # one alone says what else the machine did in these seconds
            name="the last quarter of these windows",
            unit="deliveries/s",
            rounds=tuple(one.per_second for one in pinned[-quarter:]),
            limit=Limit("the first quarter", tuple(one.per_second for one in pinned[:quarter])),
            target=_LEAST_AT_THE_END,
        ),
        # how busy the machine is does not matter to these
        Figure(
            group="pinned",
            name="pages touched for each, claim and settlement",
            unit="pages",
            rounds=tuple(one.pages for one in pinned),
            limit=Limit("without it", tuple(one.pages for one in free)),
        ),
    ]


def _load(database: Database, due: int) -> None:
    backlog.clear(database)
    backlog.add_destinations(database, ["http://127.0.0.1:9/"], max_in_flight=100)
    backlog.add_due(database, due)
    backlog.settle_down(database)


@contextmanager
def _old_transaction(database: Database) -> Iterator[None]:
    with psycopg.connect(database.url) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.execute("SELECT count(*) FROM forms")
        yield


async def _measured(database: Database, windows: int, seconds: float) -> list[_Window]:
    """Window after window, as far as the backlog lasts."""
    async with queue(database.url) as claims:
        found = list[_Window]()
        for _ in range(windows):
            database.count_anew()
            began, claimed = time.perf_counter(), 0
            while (took := time.perf_counter() - began) < seconds:
                count, _ = await claims.claim_and_settle(_BATCH)
                if not count:
                    return found
                claimed += count
            found.append(_Window(per_second=claimed / took, pages=database.counted().buffers / claimed))
    return found
