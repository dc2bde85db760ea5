"""From the 202 to the webhook, one submission at a time on an idle system, beside a round trip and two commits.

Workers poll once an hour here, so that nothing but the wake-up can explain a webhook that arrives.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

import httpx
import psycopg

from bench.figures import Effort, Figure, Limit, Target, percentile
from bench.limits import serving
from bench.server import Server
from hymical.entrypoints.local import LocalSite, created
from hymical.entrypoints.processes import role_process
from hymical.entrypoints.receiver import Received, Receiver, receiving

_FORM = "latency"
_MOST_OF_LIMIT = Target(at_most=3)
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
            f"{name:<16} p50 {percentile(seconds, 50) * 1_000:6.1f} ms"
            f"   p99 {percentile(seconds, 99) * 1_000:6.1f} ms   max {max(seconds) * 1_000:6.1f} ms"
            for name, seconds in rows
        )


def latencies(database_url: str, submissions: int) -> Latencies:
    """Runs an API and a worker on a migrated database, and posts one submission after the other."""
    found = Latencies()
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
                found.answered.append(answered_at - posted_at)
                found.arrived_after_answer.append(arrivals[-1] - answered_at)
                found.arrived_after_post.append(arrivals[-1] - posted_at)
    return found


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


def round_trip_and_two_commits(database_url: str, count: int) -> list[float]:
    """Seconds that the same client takes for a POST that does nothing, and PostgreSQL for two commits."""
    took = list[float]()
    with (
        serving("no-op") as port,
        httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False) as client,
        psycopg.connect(database_url, autocommit=True) as connection,
    ):
        connection.execute("CREATE TABLE committed (number integer)")
        for number in range(count + _WARM_UP):
            began = time.perf_counter()
            created(client.post(f"/f/{_FORM}", data={"number": str(number)}))
            for _ in range(2):
                connection.execute("INSERT INTO committed VALUES (%s)", [number])
            if number >= _WARM_UP:
                took.append(time.perf_counter() - began)
    return took


def measure(server: Server, effort: Effort) -> list[Figure]:
    count = effort.choose(200, 50)
    found, limits = list[Latencies](), list[list[float]]()
    for _ in range(effort.rounds):
        with server.database() as database:
            limits.append(round_trip_and_two_commits(database.url, count))
            found.append(latencies(database.url, count))
    return [
        Figure(
            group="end_to_end",
            name=f"{name}, p{percent}",
            unit="ms",
            rounds=tuple(percentile(seconds, percent) * 1_000 for seconds in rounds),
            limit=Limit(
                "round trip and 2 commits", tuple(percentile(one, percent) * 1_000 for one in limits)
            ),
            target=_MOST_OF_LIMIT if (name, percent) == ("202 to webhook", 50) else None,
        )
        for name, rounds in (
            ("post to 202", [one.answered for one in found]),
            ("202 to webhook", [one.arrived_after_answer for one in found]),
            ("post to webhook", [one.arrived_after_post for one in found]),
        )
        for percent in (50, 99)
    ]
