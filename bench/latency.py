"""From the 202 to the webhook, one submission at a time on an idle system: p50 and p99.

Starts everything itself, on an embedded PostgreSQL in a temporary folder: `python -m bench.latency`. Workers
poll once an hour here, so that nothing but the wake-up can explain a webhook that arrives.
"""

import statistics
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

import httpx

from hymical.entrypoints.bootstrap.database import migrate
from hymical.entrypoints.bootstrap.embedded import embedded_server, temporary_data_folder
from hymical.entrypoints.local import LocalSite, created
from hymical.entrypoints.processes import role_process
from hymical.entrypoints.receiver import Received, Receiver, receiving

SUBMISSIONS = 200
_FORM = "latency"
_LONGEST_WAIT = 30.0
_WARM_UP = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Latencies:
    """Seconds, one of each for each submission. A webhook may arrive before its 202 has been read."""

    answered: list[float] = field(default_factory=list)
    arrived_after_answer: list[float] = field(default_factory=list)
    arrived_after_post: list[float] = field(default_factory=list)

    def report(self) -> str:
        rows = (
            ("post to 202", self.answered),
            ("202 to webhook", self.arrived_after_answer),
            ("post to webhook", self.arrived_after_post),
        )
        return "\n".join(
            f"{name:<16} p50 {_percentile(seconds, 50):6.1f} ms   p99 {_percentile(seconds, 99):6.1f} ms"
            f"   max {max(seconds) * 1_000:6.1f} ms"
            for name, seconds in rows
        )


def measure(database_url: str, submissions: int = SUBMISSIONS) -> Latencies:
    """Runs an API and a worker on a migrated database, and posts one submission after the other."""
    latencies = Latencies()
    with _site(database_url) as site, ExitStack() as stack:
        arrivals: list[float] = []
        arrived = threading.Event()

        def on_webhook(_: Received) -> None:
            arrivals.append(time.perf_counter())
            arrived.set()

        receiver = stack.enter_context(receiving(Receiver(on_webhook)))
        management = stack.enter_context(site.management(site.create_key("latency")))
        created(management.post("/forms", json={"id": _FORM, "name": "Latency"}))
        destination = created(management.post(f"/forms/{_FORM}/destinations", json={"url": receiver.url}))
        receiver.secret = destination["secret"]
        public = stack.enter_context(httpx.Client(base_url=site.api_url, trust_env=False))
        for number in range(submissions + _WARM_UP):
            arrived.clear()
            posted_at = time.perf_counter()
            created(public.post(f"/f/{_FORM}", data={"number": str(number)}))
            answered_at = time.perf_counter()
            if not arrived.wait(_LONGEST_WAIT):
                raise TimeoutError(f"no webhook within {_LONGEST_WAIT:g} s")
            # so that the next one finds everybody idle again
            _wait_until_settled(management)
            if number >= _WARM_UP:
                latencies.answered.append(answered_at - posted_at)
                latencies.arrived_after_answer.append(arrivals[-1] - answered_at)
                latencies.arrived_after_post.append(arrivals[-1] - posted_at)
    return latencies


@contextmanager
def _site(database_url: str) -> Iterator[LocalSite]:
    environment = {
        "FORMS_DATABASE_URL": database_url,
        "FORMS_WEBHOOK_ALLOWED_NETWORKS": "127.0.0.0/8",
        "FORMS_WORKER_POLL_SECONDS": "1h",
        "FORMS_RATE_LIMIT_ENABLED": "false",
    }
    said: list[str] = []

    def show(role: str, line: str) -> None:
        said.append(f"{role} | {line}")

    with ExitStack() as stack:
        api = stack.enter_context(
            role_process("api", ("serve", "--port", "0"), environment, ready="Hymical API on ", show=show)
        )
        stack.enter_context(role_process("worker", ("worker",), environment, ready="worker ready", show=show))
        yield LocalSite(api_url=api.ready_line.removeprefix("Hymical API on "), environment=environment)


def _wait_until_settled(management: httpx.Client) -> None:
    until = time.monotonic() + _LONGEST_WAIT
    while created(management.get("/deliveries", params={"state": "processing", "limit": 1}))["items"]:
        if time.monotonic() > until:
            raise TimeoutError("a delivery was not settled")
        time.sleep(0.001)


def _percentile(seconds: list[float], percent: int) -> float:
    return statistics.quantiles(seconds, n=100, method="inclusive")[percent - 1] * 1_000


def main(*, submissions: int = SUBMISSIONS) -> int:
    with temporary_data_folder("hymical-latency-") as data, embedded_server(data) as server:
        migrate(server.url())
        print(measure(server.url(), submissions).report())
    return 0


if __name__ == "__main__":
    sys.exit(main())
