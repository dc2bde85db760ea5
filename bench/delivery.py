"""Signed webhooks drained by one worker from a backlog, beside a bare loop of the same sender."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from ipaddress import ip_network
from itertools import cycle, islice

import uvloop

from bench import backlog
from bench.figures import Effort, Figure, Limit, Target
from bench.receivers import Receivers, receivers
from bench.senders import send_all
from bench.server import Server, cpu_seconds
from hymical.adapters.http.aiohttp_sender import AiohttpWebhookSender
from hymical.adapters.http.egress import Egress
from tests.site import Site

_LONGEST_DRAIN = 180.0
_PATIENCE = timedelta(seconds=5)
_LEAST_OF_LOOP = Target(at_least=0.45)
_MOST_STATEMENTS = Target(at_most=0.3)
_LARGE_BATCH = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """`in_flight` is what a worker can have under way with these: the most of a destination, or of the worker."""

    name: str
    destinations: int
    max_in_flight: int
    batch: int

    @property
    def in_flight(self) -> int:
        return min(100, self.max_in_flight * self.destinations)


_SETTINGS = (
    Setting(name="1 receiver, defaults", destinations=1, max_in_flight=10, batch=10),
    Setting(name="200 receivers, defaults", destinations=200, max_in_flight=10, batch=10),
    Setting(name="1 receiver, 100 in flight, batch 64", destinations=1, max_in_flight=100, batch=64),
    Setting(name="200 receivers, 100 in flight, batch 64", destinations=200, max_in_flight=100, batch=64),
)


@dataclass(slots=True)
class _Found:
    worker: list[float] = field(default_factory=list)
    never_idle: list[float] = field(default_factory=list)
    loop: list[float] = field(default_factory=list)
    statements: list[float] = field(default_factory=list)


def measure(server: Server, effort: Effort) -> list[Figure]:
    count, settings, times = effort.choose((20_000, _SETTINGS, 3), (2_000, _SETTINGS[::2], 1))
    found: dict[str, _Found] = defaultdict(_Found)
    # short rounds, of which two differ by a fifth
    for _ in range(times * effort.rounds):
        for setting in settings:
            with receivers(setting.destinations) as listening:
                drained = drain(server, listening, setting, count)
                found[setting.name].worker.append(drained.per_second)
                found[setting.name].never_idle.append(drained.per_second_of_cpu)
                found[setting.name].statements.append(drained.statements)
                listening.count_anew()
                uvloop.run(_bare_loop(listening, setting.in_flight, count))
                found[setting.name].loop.append(listening.counted().per_second)
    return [figure for setting in settings for figure in _figures(setting, found[setting.name])]


@dataclass(frozen=True, slots=True, kw_only=True)
class Drained:
    """Webhooks a second from the first arrival to the last, those of a second of the worker's CPU, and statements."""

    per_second: float
    per_second_of_cpu: float
    statements: float


def drain(server: Server, listening: Receivers, setting: Setting, count: int) -> Drained:
    with server.database() as database, Site(database.url, worker_poll_seconds="1") as site:
        backlog.add_form(database)
        backlog.add_destinations(database, listening.urls, max_in_flight=setting.max_in_flight)
        backlog.add_due(database, count)
        backlog.settle_down(database)
        database.count_anew()
        worker = site.start_worker(worker_batch_size=str(setting.batch))
        # behind the start of the worker
        before, used = listening.have(count // 10, within=_LONGEST_DRAIN), cpu_seconds(worker.pid)
        counts = listening.have(count, within=_LONGEST_DRAIN)
        return Drained(
            per_second=counts.per_second,
            per_second_of_cpu=(counts.requests - before.requests) / (cpu_seconds(worker.pid) - used),
            statements=database.counted().statements / count,
        )


async def _bare_loop(listening: Receivers, in_flight: int, count: int) -> None:
    egress = Egress(allowed_networks=(ip_network("127.0.0.0/8"),))
    async with AiohttpWebhookSender(
        egress=egress, connect_timeout=_PATIENCE, read_timeout=_PATIENCE
    ) as sender:
        await send_all(sender, list(islice(cycle(listening.urls), count)), in_flight)


def _figures(setting: Setting, found: _Found) -> Iterator[Figure]:
    yield Figure(
        group="delivery",
        name=setting.name,
        unit="webhooks/s",
        rounds=tuple(found.worker),
        limit=Limit(f"bare loop, {setting.in_flight} in flight", tuple(found.loop)),
        target=_LEAST_OF_LOOP,
    )
    yield Figure(
        group="delivery",
        name=f"{setting.name}, were the worker never idle",
        unit="webhooks/s",
        rounds=tuple(found.never_idle),
        limit=Limit(f"bare loop, {setting.in_flight} in flight", tuple(found.loop)),
    )
    yield Figure(
        group="delivery",
        name=f"{setting.name}, statements",
        unit="a webhook",
        rounds=tuple(found.statements),
        target=_MOST_STATEMENTS if setting.batch >= _LARGE_BATCH else None,
    )
