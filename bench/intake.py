"""Form posts answered durably by one API process, beside its framework, its parser and PostgreSQL alone."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from bench import backlog
from bench.commits import posts_per_second
from bench.figures import Effort, Figure, Limit, Target
from bench.limits import serving
from bench.load import Answered, Load, post
from bench.server import Database, Server
from tests.site import Running, Site

_CONNECTIONS = (1, 8, 32, 128)
_TARGETS = {32: Target(at_least=0.45), 128: Target(at_least=0.55)}
_PATH = f"/f/{backlog.FORM}"
_NOBODY = "http://127.0.0.1:9/"
_SOURCES = 1_000
_PGBENCH = {
    "8 clients, 1 post each": (8, 1, True),
    "8 clients, 1 post each, limits off": (8, 1, False),
    "2 clients, 32 posts each": (2, 32, True),
    "2 clients, 32 posts each, limits off": (2, 32, False),
}
LIMITED = {
    "rate_limit_enabled": "true",
    # the most that can be set: all the work is done, and none is refused
    "rate_limit_ip_requests": "1000000",
    "rate_limit_form_requests": "1000000",
    "duplicate_window_seconds": "10",
    "trusted_proxy_hops": "1",
}

_Rates = dict[tuple[str, int], list[Answered]]


def measure(server: Server, effort: Effort) -> list[Figure]:
    seconds = effort.choose(5, 1)
    steps = effort.choose(_CONNECTIONS, (32,))
    found: _Rates = defaultdict(list)
    pgbench: dict[str, list[float]] = defaultdict(list)
    for _ in range(effort.rounds):
        with server.database() as database, _all(database) as ports:
            for connections in steps:
                for name, (port, sources) in ports.items():
                    load = Load(
                        port=port, path=_PATH, connections=connections, seconds=seconds, sources=sources
                    )
                    found[name, connections].append(post(load))
        for name, (clients, batch, limited) in _PGBENCH.items():
            if effort.quick and not limited:
                continue
            with server.database() as database:
                backlog.add_form(database)
                backlog.add_destinations(database, [_NOBODY])
                pgbench[name].append(
                    posts_per_second(
                        server, database, clients=clients, batch=batch, limited=limited, seconds=seconds
                    )
                )
    return [*_rates(found, steps), *_latencies(found, steps), *_beside_pgbench(found, pgbench)]


@contextmanager
def _all(database: Database) -> Iterator[dict[str, tuple[int, int]]]:
    """The port of each server that is measured, and how many clients post to it; all run, one at a time works."""
    with Site(database.url, **LIMITED) as site, ExitStack() as stack:
        on = port_of(site.start_api())
        off = port_of(site.start_api(rate_limit_enabled="false"))
        backlog.add_form(database)
        backlog.add_destinations(database, [_NOBODY])
        ports = {
            "no-op": (stack.enter_context(serving("no-op")), 1),
            "parsing": (stack.enter_context(serving("parsing")), 1),
            "limits on, one source": (on, 1),
            f"limits on, {_SOURCES:,} sources": (on, _SOURCES),
            "limits off": (off, 1),
        }
        for port, _ in set(ports.values()):
            post(Load(port=port, path=_PATH, connections=8, seconds=0.5))
        yield ports


def _rates(found: _Rates, steps: Sequence[int]) -> Iterator[Figure]:
    for connections in steps:
        parsing = Limit("parsing POST", _per_second(found["parsing", connections]))
        for name in ("limits on, one source", f"limits on, {_SOURCES:,} sources", "limits off"):
            yield Figure(
                group="intake",
                name=f"{connections} connections, {name}",
                unit="posts/s",
                rounds=_per_second(found[name, connections]),
                limit=parsing,
                target=_TARGETS.get(connections) if name == "limits on, one source" else None,
            )
        yield Figure(
            group="intake",
            name=f"{connections} connections, parsing POST",
            unit="posts/s",
            rounds=parsing.rounds,
            limit=Limit("no-op POST", _per_second(found["no-op", connections])),
        )


def _latencies(found: _Rates, steps: Sequence[int]) -> Iterator[Figure]:
    for connections in steps:
        for percent in (50, 99):
            yield Figure(
                group="intake",
                name=f"{connections} connections, limits on, p{percent}",
                unit="ms",
                rounds=_milliseconds(found["limits on, one source", connections], percent),
                limit=Limit("parsing POST", _milliseconds(found["parsing", connections], percent)),
            )


def _beside_pgbench(found: _Rates, pgbench: dict[str, list[float]]) -> Iterator[Figure]:
    for name, rounds in pgbench.items():
        ours = "limits off" if name.endswith("off") else "limits on, one source"
        yield Figure(
            group="intake",
            name=f"32 connections, {ours}",
            unit="posts/s",
            rounds=_per_second(found[ours, 32]),
            limit=Limit(f"pgbench, {name.removesuffix(', limits off')}", tuple(rounds)),
        )


def _per_second(answered: list[Answered]) -> tuple[float, ...]:
    return tuple(one.per_second for one in answered)


def _milliseconds(answered: list[Answered], percent: int) -> tuple[float, ...]:
    return tuple(one.milliseconds(percent) for one in answered)


def port_of(api: Running) -> int:
    return int(api.ready_line.rpartition(":")[2])
