"""Claiming and settling while an old transaction keeps vacuum from removing anything, beside the same without it."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import psycopg

from bench import backlog
from bench.claims import Queue, queue
from bench.figures import Effort, Figure, Limit, Target
from bench.server import Database, Server

_BATCH = 64
_LEAST_OF_FREE = Target(at_least=0.8)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Window:
    """`pages` are those touched for each delivery."""

    per_second: float
    pages: float


def measure(server: Server, effort: Effort) -> list[Figure]:
    """Rounds are windows here, of two databases in turn: what else the machine does meets both."""
    due, windows, window_seconds = effort.choose((1_000_000, 12, 10.0), (60_000, 3, 2.0))
    with server.database() as one, server.database() as other:
        _load(one, due)
        _load(other, due)
        # it keeps vacuum from what lies in its own database
        with _old_transaction(one):
            both = asyncio.run(_measured(one, other, windows, window_seconds))
    pinned, free = [window for window, _ in both], [window for _, window in both]
    quarter = max(1, len(both) // 4)
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
            name="the last quarter of these windows",
            unit="deliveries/s",
            rounds=tuple(one.per_second for one in pinned[-quarter:]),
            limit=Limit("without it", tuple(one.per_second for one in free[-quarter:])),
            target=_LEAST_OF_FREE,
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
    backlog.add_form(database)
    backlog.add_destinations(database, ["http://127.0.0.1:9/"], max_in_flight=100)
    backlog.add_due(database, due)
    backlog.settle_down(database)


@contextmanager
def _old_transaction(database: Database) -> Iterator[None]:
    with psycopg.connect(database.url) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.execute("SELECT count(*) FROM forms")
        yield


async def _measured(
    one: Database, other: Database, windows: int, seconds: float
) -> list[tuple[_Window, _Window]]:
    """Window after window of each, as far as the backlog lasts."""
    found = list[tuple[_Window, _Window]]()
    async with queue(one.url) as claims, queue(other.url) as others:
        for _ in range(windows):
            first = await _window(one, claims, seconds)
            second = await _window(other, others, seconds)
            if first is None or second is None:
                break
            found.append((first, second))
    return found


async def _window(database: Database, claims: Queue, seconds: float) -> _Window | None:
    database.count_anew()
    began, claimed = time.perf_counter(), 0
    while (took := time.perf_counter() - began) < seconds:
        count, _ = await claims.claim_and_settle(_BATCH)
        if not count:
            return None
        claimed += count
    return _Window(per_second=claimed / took, pages=database.counted().buffers / claimed)
