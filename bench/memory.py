"""Resident memory over many submissions, and over an export of many, after a warm-up: it must stay flat."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread

from bench import backlog
from bench.figures import Effort, Figure, Limit, Target
from bench.intake import LIMITED, port_of
from bench.load import Load, post
from bench.receivers import receivers
from bench.server import Server, megabytes
from tests.site import Site

_FLAT = Target(at_most=1.05)
_PATIENCE = 600.0


def measure(server: Server, effort: Effort) -> list[Figure]:
    return [*_while_delivering(server, effort), *_while_exporting(server, effort)]


def _while_delivering(server: Server, effort: Effort) -> list[Figure]:
    """Rounds are slices here, one after the other, held against the second one: the first warms up."""
    slices, a_slice = effort.choose((10, 20_000), (4, 500))
    api_mb, worker_mb = list[float](), list[float]()
    with receivers(1) as listening, server.database() as database, Site(database.url, **LIMITED) as site:
        backlog.add_form(database)
        backlog.add_destinations(database, listening.urls, max_in_flight=100)
        api, worker = site.start_api(), site.start_worker(worker_batch_size="64")
        for _ in range(slices):
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
    return list(_figures(a_slice * slices, {"API": api_mb, "worker": worker_mb}))


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


def _while_exporting(server: Server, effort: Effort) -> list[Figure]:
    """The most that the worker holds while it writes the file, and the API while it serves it."""
    few, many = effort.choose((50_000, 1_000_000), (2_000, 20_000))
    with server.database() as database, Site(database.url) as site:
        backlog.add_form(database)
        api, worker = site.start_api(), site.start_worker("exports")
        most = list[tuple[float, float]]()
        for count, behind in ((few, 0), (many, few)):
            backlog.add_submissions(database, count, behind=behind)
            with _most_of(worker.pid) as of_worker:
                job_id = _exported(site)
            with _most_of(api.pid) as of_api:
                _fetched(site, job_id)
            most.append((of_worker[0], of_api[0]))
    return [
        Figure(
            group="memory",
            name=f"{name} {few + many:,} submissions, at most",
            unit="MB",
            rounds=(most[1][place],),
            limit=Limit(f"{few:,} of them", (most[0][place],)),
            target=_FLAT,
        )
        for place, name in enumerate(("worker that exports", "API that serves a file of"))
    ]


def _exported(site: Site) -> str:
    answer = site.management.post("/exports", json={"form_id": backlog.FORM, "format": "ndjson"})
    job = answer.raise_for_status().json()
    deadline = time.monotonic() + _PATIENCE
    while (state := site.read(f"/jobs/{job['id']}")["state"]) != "completed":
        if state == "failed" or time.monotonic() > deadline:
            raise RuntimeError(f"the export is {state}")
        time.sleep(0.1)
    return str(job["id"])


def _fetched(site: Site, job_id: str) -> None:
    with site.management.stream("GET", f"/exports/{job_id}/file", timeout=_PATIENCE) as answer:
        answer.raise_for_status()
        for _ in answer.iter_raw():
            pass


@contextmanager
def _most_of(pid: int) -> Iterator[list[float]]:
    """The most resident memory of a process while the block lasts, looked at twenty times a second."""
    most, over = [megabytes(pid)], Event()

    def look() -> None:
        while not over.wait(0.05):
            most[0] = max(most[0], megabytes(pid))

    looking = Thread(target=look)
    looking.start()
    try:
        yield most
    finally:
        over.set()
        looking.join()
