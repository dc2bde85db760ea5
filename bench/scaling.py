"""What a claim costs as the backlog, the history, the destinations and the workers grow, beside the near end."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field

from bench import backlog
from bench.claims import queue
from bench.figures import Effort, Figure, Limit, Target, percentile
from bench.receivers import receivers
from bench.server import Database, Server
from tests.site import Site

_BATCH = 64
_CLAIMS = 20
# psycopg prepares after 5, and PostgreSQL plans 5 more times then
_WARM_UP = 15
# a thousand are left when the last round ends
_NEAR = 1_000 + 3 * _BATCH * (_CLAIMS + _WARM_UP)
_MOST_BUFFERS = Target(at_most=1.2)
_MOST_TIME = Target(at_most=1.3)
_LONGEST_DRAIN = 180.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Size:
    due: int = _NEAR
    history: int = 0
    destinations: int = 1


@dataclass(slots=True)
class _Claims:
    """One of each for each round: milliseconds of the median claim, and pages touched for each claimed row."""

    p50: list[float] = field(default_factory=list)
    buffers: list[float] = field(default_factory=list)


def measure(server: Server, effort: Effort) -> list[Figure]:
    due, history, destinations = effort.choose((1_000_000, 3_000_000, 10_000), (30_000, 50_000, 500))
    sizes = {
        "near": _Size(),
        f"{due:,} due": _Size(due=due),
        f"{history:,} finished": _Size(history=history),
        # a claim of 64 takes from 64 of them in any case
        "near, 64 destinations": _Size(destinations=_BATCH),
        f"{destinations:,} destinations": _Size(destinations=destinations, due=max(10 * destinations, _NEAR)),
    }
    found = {name: _Claims() for name in sizes}
    # the far end is what takes its time to load, and is the same every time: rounds are of claims
    with server.database() as database:
        backlog.add_form(database)
        for name, size in sizes.items():
            _load(database, size)
            for _ in range(effort.rounds):
                asyncio.run(_claims(database, found[name]))
    figures = [
        figure
        for name in sizes
        if not name.startswith("near")
        for figure in _beside(
            name, found[name], found["near, 64 destinations" if "destinations" in name else "near"]
        )
    ]
    return [*figures, *_workers(server, effort)]


def _load(database: Database, size: _Size) -> None:
    backlog.clear(database)
    backlog.add_destinations(database, ["http://127.0.0.1:9/"], max_in_flight=100, copies=size.destinations)
    backlog.add_history(database, size.history)
    backlog.add_due(database, size.due)
    backlog.settle_down(database)


async def _claims(database: Database, found: _Claims) -> None:
    async with queue(database.url) as claims:
        for _ in range(_WARM_UP):
            await claims.claim_and_settle(_BATCH)
        database.count_anew()
        took = [await claims.claim_and_settle(_BATCH) for _ in range(_CLAIMS)]
        # PostgreSQL counts here what EXPLAIN (ANALYZE, BUFFERS) shows, of the statements as they are really sent
        pages = sum(database.counted(f"%{mark}%").buffers for mark in _OF_A_CLAIM)
    claimed = sum(count for count, _ in took)
    found.p50.append(percentile([seconds for _, seconds in took], 50) * 1_000)
    found.buffers.append(pages / claimed)


_OF_A_CLAIM = ("SET ready = TRUE FROM due", "RECURSIVE step")
"""Words by which the statements of a claim are known: promote, claim."""


def _beside(name: str, far: _Claims, near: _Claims) -> Iterator[Figure]:
    yield Figure(
        group="scaling",
        name=f"{name}, claim of {_BATCH}, p50",
        unit="ms",
        rounds=tuple(far.p50),
        limit=Limit("near end", tuple(near.p50)),
        target=_MOST_TIME,
    )
    yield Figure(
        group="scaling",
        name=f"{name}, pages for each claimed row",
        unit="pages",
        rounds=tuple(far.buffers),
        limit=Limit("near end", tuple(near.buffers)),
        target=_MOST_BUFFERS,
    )


def _workers(server: Server, effort: Effort) -> list[Figure]:
    count, rates = effort.choose(10_000, 1_000), dict[int, list[float]]()
    for workers in (1, 2, 4):
        rates[workers] = [_drained(server, workers, count) for _ in range(effort.rounds)]
    return [
        Figure(
            group="scaling",
            name=f"{workers} workers",
            unit="webhooks/s",
            rounds=tuple(rates[workers]),
            limit=Limit("1 worker", tuple(rates[1])),
        )
        for workers in (2, 4)
    ]


def _drained(server: Server, workers: int, count: int) -> float:
    with receivers(20) as listening, server.database() as database, Site(database.url) as site:
        backlog.add_form(database)
        backlog.add_destinations(database, listening.urls, max_in_flight=100)
        # so that all are there and wait before there is anything to do
        asyncio.run(_start(site, workers))
        backlog.add_due(database, count)
        return listening.have(count, within=_LONGEST_DRAIN).per_second


async def _start(site: Site, workers: int) -> None:
    await site.start_workers(workers, worker_batch_size=str(_BATCH))
