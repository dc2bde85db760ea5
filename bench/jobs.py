"""Jobs enqueued, drained and started, beside procrastinate and pgqueuer on the same PostgreSQL in the same run."""

import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from bench.figures import Effort, Figure, Limit, Target, percentile
from bench.job_peers import PEERS
from bench.server import Database, Server

_OURS = "hymical"
_AHEAD = Target(at_least=1.0)
_SOONER = Target(at_most=1.0)
_LONGEST = 600.0
_DONE = {
    "hymical": "SELECT count(*) FROM jobs WHERE state = 'completed'",
    "procrastinate": "SELECT count(*) FROM procrastinate_jobs WHERE status = 'succeeded'",
    "pgqueuer": "SELECT count(*) FROM pgqueuer_log WHERE status = 'successful'",
}
"""What ended is counted in the database, never by what handlers say."""


def measure(server: Server, effort: Effort) -> list[Figure]:
    singles, bulk = effort.choose(2_000, 300), effort.choose(50_000, 10_000)
    jobs, starts = effort.choose(20_000, 500), effort.choose(300, 30)
    concurrencies = effort.choose((1, 10, 50), (10,))
    # the slower one is left out of a quick run
    peers = effort.choose(tuple(PEERS), (_OURS, "pgqueuer"))
    backlog, window = effort.choose(1_000_000, 0), 20.0
    found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for _ in range(effort.rounds):
        for name in peers:
            with _installed(server, name) as database:
                seconds = _step(name, "enqueue_single", database, singles)["seconds"]
                found["enqueue one at a time"][name].append(singles / seconds)
            with _installed(server, name) as database:
                seconds = _step(name, "enqueue_bulk", database, bulk)["seconds"]
                found["enqueue 1,000 at a time"][name].append(bulk / seconds)
            for at_once in concurrencies:
                with _installed(server, name) as database:
                    _step(name, "enqueue_bulk", database, jobs)
                    found[f"drain, {at_once} at a time"][name].append(_drained(name, database, at_once, jobs))
            with _installed(server, name) as database:
                waits = _start_latencies(name, database, starts)
                found["enqueued to started, idle, p50"][name].append(percentile(waits, 50))
                found["enqueued to started, idle, p99"][name].append(percentile(waits, 99))
    for name in peers if backlog else ():
        with _installed(server, name) as database:
            _step(name, "enqueue_bulk", database, backlog)
            database.execute("VACUUM ANALYZE")
            seconds = _step(name, "enqueue_single", database, singles)["seconds"]
            found[f"enqueue one at a time, behind {backlog:,}"][name].append(singles / seconds)
            for at_once in concurrencies:
                drained = _drained(name, database, at_once, backlog, seconds=window)
                found[f"drain, {at_once} at a time, from {backlog:,}"][name].append(drained)
    return [
        _figure(what, rounds, other) for what, rounds in found.items() for other in peers if other != _OURS
    ]


def _figure(what: str, rounds: dict[str, list[float]], other: str) -> Figure:
    is_wait = "started" in what
    return Figure(
        group="jobs",
        name=what,
        unit="ms" if is_wait else "jobs/s",
        rounds=tuple(rounds[_OURS]),
        limit=Limit(other, tuple(rounds[other])),
        target=_SOONER if is_wait else _AHEAD,
    )


@contextmanager
def _installed(server: Server, name: str) -> Iterator[Database]:
    with server.database() as database:
        _step(name, "install", database)
        yield database


def _drained(name: str, database: Database, at_once: int, count: int, *, seconds: float = _LONGEST) -> float:
    ((before,),) = database.query(_DONE[name])
    said = _step(name, "drain", database, at_once, count, seconds)
    ((after,),) = database.query(_DONE[name])
    if seconds == _LONGEST and after - before < count:
        raise RuntimeError(f"{name} drained {after - before:,} of {count:,}")
    return float(min(after - before, said["ran"]) / said["seconds"])


def _start_latencies(name: str, database: Database, count: int) -> list[float]:
    """From the call that enqueues in one process to the handler in another, in milliseconds."""
    serving = subprocess.Popen(
        _command(name, "serve", database, 10, count),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert serving.stdout is not None  # noqa: S101
        if serving.stdout.readline().strip() != "ready":
            raise RuntimeError(f"{name} does not serve: {serving.communicate()[1][-2_000:]}")
        enqueued = _step(name, "enqueue_paced", database, count, 0.02)["began"]
        said, _ = serving.communicate(timeout=90)
    finally:
        serving.kill()
        serving.wait()
    started = json.loads(said.splitlines()[-1])["began"]
    if None in started:
        raise RuntimeError(f"{name} started {count - started.count(None)} of {count}")
    return [1_000 * (late - early) for early, late in zip(enqueued, started, strict=True)]


def _command(name: str, step: str, database: Database, *arguments: object) -> list[str]:
    return [sys.executable, "-m", "bench.job_peers", name, step, database.url, *map(str, arguments)]


def _step(name: str, step: str, database: Database, *arguments: object) -> dict[str, Any]:
    ended = subprocess.run(
        _command(name, step, database, *arguments),
        capture_output=True,
        text=True,
        check=False,
        timeout=_LONGEST + 60,
    )
    if ended.returncode != 0:
        raise RuntimeError(f"{name} {step}: {ended.stderr[-2_000:]}")
    said: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return said
