"""What a job tells until whoever watches it over HTTP reads it: worker and API apart, one publishing every 10 ms."""

import json
import time

import httpx

from bench.figures import Effort, Figure, Target, percentile
from bench.server import Server
from tests.site import Site

_SOON_ENOUGH = Target(at_most=100.0)


def measure(server: Server, effort: Effort) -> list[Figure]:
    count = effort.choose(1_000, 100)
    with server.database() as database, Site(database.url, job_modules="bench.job_types") as site:
        site.start_api()
        site.start_worker("bench")
        rounds = [_latencies(site, count) for _ in range(effort.rounds)]
    return [
        Figure(
            group="events",
            name=f"published to read over HTTP, p{percent}",
            unit="ms",
            rounds=tuple(percentile(one, percent) * 1_000 for one in rounds),
            target=_SOON_ENOUGH if percent == 99 else None,  # noqa: PLR2004
        )
        for percent in (50, 99)
    ]


def _latencies(site: Site, count: int) -> list[float]:
    """Seconds from the call that publishes, in one process, to its line of the stream, in another; none is missed."""
    job = {"type": "bench_ticks", "payload": {"count": count}}
    job_id = site.management.post("/jobs", json=job).raise_for_status().json()["id"]
    took, headers = list[float](), {"Authorization": f"Bearer {site.key}"}
    with (
        httpx.Client(trust_env=False, timeout=30) as client,
        client.stream("GET", f"{site.api_url}/api/v1/jobs/{job_id}/events", headers=headers) as answer,
    ):
        for line in answer.iter_lines():
            if line.startswith("event: end"):
                break
            if line.startswith("data: "):
                took.append(time.monotonic() - json.loads(line[6:])["message"]["at"])
    if len(took) != count:
        raise RuntimeError(f"{len(took)} of {count} events were read")
    return took
