"""Resident memory of an API and a worker over many submissions, after a warm-up: it must stay flat."""

from collections.abc import Iterator

from bench import backlog
from bench.figures import Effort, Figure, Limit, Target
from bench.intake import LIMITED, port_of
from bench.load import Load, post
from bench.receivers import receivers
from bench.server import Server, megabytes
from tests.site import Site

_SLICES = 10
_FLAT = Target(at_most=1.05)
_PATIENCE = 600.0


def measure(server: Server, effort: Effort) -> list[Figure]:
    """Rounds are slices here, one after the other, held against the second one: the first warms up."""
    a_slice = effort.choose(20_000, 300)
    api_mb, worker_mb = list[float](), list[float]()
    with receivers(1) as listening, server.database() as database, Site(database.url, **LIMITED) as site:
        backlog.add_form(database)
        backlog.add_destinations(database, listening.urls, max_in_flight=100)
        api, worker = site.start_api(), site.start_worker(worker_batch_size="64")
        for _ in range(_SLICES):
            listening.count_anew()
            load = Load(
                port=port_of(api),
                path=f"/f/{backlog.FORM}",
                connections=32,
                seconds=_PATIENCE,
                at_most=a_slice,
            )
            listening.have(len(post(load).latencies), within=_PATIENCE)
            api_mb.append(megabytes(api.pid))
            worker_mb.append(megabytes(worker.pid))
    return list(_figures(a_slice * _SLICES, {"API": api_mb, "worker": worker_mb}))


def _figures(submissions: int, resident: dict[str, list[float]]) -> Iterator[Figure]:
    for name, slices in resident.items():
        yield Figure(
            group="memory",
            name=f"{name}, over {submissions:,} submissions",
            unit="MB",
            rounds=tuple(slices[2:]),
            limit=Limit("after warm-up", (slices[1],) * len(slices[2:])),
            target=_FLAT,
        )
