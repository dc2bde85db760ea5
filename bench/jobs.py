"""Jobs enqueued, drained and started, beside procrastinate and pgqueuer on the same PostgreSQL in the same run."""

import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
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
    # one at a time is slow with some
    drains = effort.choose({1: 5_000, 10: 10_000, 50: 20_000}, {10: 500})
    starts, turns = effort.choose(300, 30), effort.choose(5, 1)
    # the slower one is left out of a quick run
    peers = effort.choose(tuple(PEERS), (_OURS, "pgqueuer"))
    backlog, window = effort.choose(1_000_000, 0), 20.0
    found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))

    def note(what: str, rates: dict[str, float]) -> None:
        for name, rate in rates.items():
            found[what][name].append(rate)

    for _ in range(effort.rounds):
        for what, step, count in (
            ("enqueue one at a time", "enqueue_single", singles),
            ("enqueue 1,000 at a time", "enqueue_bulk", bulk),
        ):
            with _all_installed(server, peers) as databases:
                note(what, _enqueued(step, databases, count, turns))
        for name in peers:
            for at_once, jobs in drains.items():
                with _installed(server, name) as database:
                    _step(name, "enqueue_bulk", database, jobs)
                    note(f"drain, {at_once} at a time", {name: _drained(name, database, at_once, jobs)})
            with _installed(server, name) as database:
                waits = _start_latencies(name, database, starts)
                note("enqueued to started, idle, p50", {name: percentile(waits, 50)})
                note("enqueued to started, idle, p99", {name: percentile(waits, 99)})
    if backlog:
        with _all_installed(server, peers) as databases:
            for name, database in databases.items():
                _step(name, "enqueue_bulk", database, backlog)
                database.execute("VACUUM ANALYZE")
                database.execute("CHECKPOINT")
            rates = _enqueued("enqueue_single", databases, singles, turns)
            note(f"enqueue one at a time, behind {backlog:,}", rates)
            for at_once in drains:
                for name, database in databases.items():
                    drained = _drained(name, database, at_once, backlog, seconds=window)
                    note(f"drain, {at_once} at a time, from {backlog:,}", {name: drained})
    return [
        _figure(what, rounds, other) for what, rounds in found.items() for other in peers if other != _OURS
    ]


def _enqueued(step: str, databases: dict[str, Database], count: int, turns: int) -> dict[str, float]:
    """Jobs/s of each, by turns: what a flush to the disk takes is another from one second to the next."""
    share, seconds = count // turns, dict.fromkeys(databases, 0.0)
    for _ in range(turns):
        for name, database in databases.items():
            seconds[name] += _step(name, step, database, share)["seconds"]
    return {name: share * turns / took for name, took in seconds.items()}


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


@contextmanager
def _all_installed(server: Server, names: Sequence[str]) -> Iterator[dict[str, Database]]:
    with ExitStack() as stack:
        yield {name: stack.enter_context(_installed(server, name)) for name in names}


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
