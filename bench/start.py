"""How long a command, the API and a worker take to be of use, beside Python that does nothing."""

import subprocess
import sys
import time
from collections.abc import Sequence

import httpx

from bench import backlog
from bench.figures import Effort, Figure, Limit
from bench.receivers import receivers
from bench.server import Database, Server
from hymical.entrypoints.processes import child_environment
from tests.site import Site

_PATIENCE = 60.0


def measure(server: Server, effort: Effort) -> list[Figure]:
    rounds = effort.rounds * effort.choose(3, 1)
    nothing, shown, ready, claimed = (list[float]() for _ in range(4))
    with server.database() as database:
        backlog.add_form(database)
        for _ in range(rounds):
            nothing.append(_to_the_end("-c", "pass"))
            shown.append(_to_the_end("-m", "hymical", "--help"))
            ready.append(_api_ready(database))
            claimed.append(_first_webhook(database))
    limit = Limit("python -c pass", tuple(nothing))
    return [
        Figure(group="start", name=name, unit="s", rounds=tuple(seconds), limit=limit)
        for name, seconds in (
            ("hymical --help", shown),
            ("API until /ready answers", ready),
            ("worker until its first webhook", claimed),
        )
    ]


def _to_the_end(*arguments: str) -> float:
    began = time.perf_counter()
    _run(arguments)
    return time.perf_counter() - began


def _run(arguments: Sequence[str]) -> None:
    subprocess.run([sys.executable, *arguments], env=child_environment({}), check=True, capture_output=True)


def _api_ready(database: Database) -> float:
    with Site(database.url) as site:
        began = time.perf_counter()
        site.start_api()
        httpx.get(f"{site.api_url}/ready", trust_env=False, timeout=_PATIENCE).raise_for_status()
        return time.perf_counter() - began


def _first_webhook(database: Database) -> float:
    with receivers(1) as listening, Site(database.url) as site:
        backlog.clear(database)
        backlog.add_destinations(database, listening.urls)
        backlog.add_due(database, 1)
        began = time.perf_counter()
        site.start_worker()
        return listening.have(1, within=_PATIENCE).first - began
