"""What a destination that hangs does to another one: the healthy one's latency with and without it.

One worker, at the default settings but for the breaker, which is kept from opening so that the destination goes on
hanging: every request to it takes the whole deadline. Rounds alternate.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from ipaddress import ip_network

import psycopg
from pydantic import SecretStr

from bench.figures import Effort, Figure, Limit, Target, percentile
from bench.server import Server
from hymical.domain.forms import NewForm, PostedForm
from hymical.domain.ids import DestinationId, FormId
from hymical.entrypoints.bootstrap.container import Container
from hymical.entrypoints.bootstrap.resources import Role, open_container
from hymical.entrypoints.bootstrap.settings import Settings
from hymical.entrypoints.processes import role_process

_PER_SECOND = 40
_MOST_OF_ALONE = Target(at_most=1.5)
_LONGEST_WAIT = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """Milliseconds from the acceptance's commit to the arrival at the healthy receiver."""

    p50: float
    p99: float

    @classmethod
    def of(cls, seconds: list[float]) -> "Round":
        return cls(p50=percentile(seconds, 50) * 1_000, p99=percentile(seconds, 99) * 1_000)


class Receivers:
    """A receiver that answers at once and notes when, and one that never answers."""

    def __init__(self) -> None:
        self.arrivals: dict[str, float] = {}
        self.hanging = 0
        self._arrived = asyncio.Condition()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower().split("\r\n")
                fields = dict(line.split(": ", 1) for line in head[1:] if ": " in line)
                body = await reader.readexactly(int(fields["content-length"]))
                async with self._arrived:
                    self.arrivals[body.split(b'"number":["')[1].split(b'"')[0].decode()] = time.perf_counter()
                    self._arrived.notify_all()
                writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def hang(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.hanging += 1
        try:
            while await reader.read(65_536):
                pass
        except ConnectionError:
            pass
        finally:
            writer.close()

    async def all_of(self, numbers: list[str]) -> None:
        async with asyncio.timeout(_LONGEST_WAIT), self._arrived:
            await self._arrived.wait_for(lambda: all(number in self.arrivals for number in numbers))


async def _measure(
    database_url: str, *, backlog: int, rounds: int, submissions: int
) -> tuple[list[Round], list[Round]]:
    """Rounds without the hanging destination's backlog, and rounds with it, alternating."""
    settings = Settings(
        database_url=SecretStr(database_url),
        webhook_allowed_networks=(ip_network("127.0.0.0/8"),),
        rate_limit_enabled=False,
    )
    receivers, alone, beside = Receivers(), list[Round](), list[Round]()
    async with (
        await asyncio.start_server(receivers.answer, "127.0.0.1", 0) as healthy,
        await asyncio.start_server(receivers.hang, "127.0.0.1", 0) as hanging,
        open_container(settings, Role.API) as container,
        _worker(database_url),
    ):
        await _destination(container, "healthy", healthy.sockets[0].getsockname()[1])
        stuck = await _destination(container, "hanging", hanging.sockets[0].getsockname()[1])
        await _steadily(container, receivers, "warm-up", 50)
        for number in range(rounds):
            await _without(database_url, stuck)
            alone.append(await _steadily(container, receivers, f"alone-{number}", submissions))
            await _with(database_url, stuck, backlog)
            beside.append(await _steadily(container, receivers, f"beside-{number}", submissions))
    return alone, beside


@asynccontextmanager
async def _worker(database_url: str) -> AsyncIterator[None]:
    environment = {
        "FORMS_DATABASE_URL": database_url,
        "FORMS_WEBHOOK_ALLOWED_NETWORKS": "127.0.0.0/8",
        "FORMS_WEBHOOK_BREAKER_FAILURES": "1000000000",
    }
    running = role_process("worker", ("worker",), environment, ready="worker ready", show=lambda *_: None)
    await asyncio.to_thread(running.__enter__)
    try:
        yield
    finally:
        await asyncio.to_thread(running.__exit__, None, None, None)


async def _destination(container: Container, form_id: str, port: int) -> DestinationId:
    await container.create_form()(NewForm(id=FormId(form_id), name=form_id))
    made = await container.create_destination()(FormId(form_id), f"http://127.0.0.1:{port}/")
    return made.id


async def _steadily(container: Container, receivers: Receivers, name: str, count: int) -> Round:
    accept, committed = container.accept_posts(), dict[str, float]()
    start = time.perf_counter()
    for number in range(count):
        await asyncio.sleep(max(0.0, start + number / _PER_SECOND - time.perf_counter()))
        label = f"{name}-{number}"
        await accept([PostedForm(form_id=FormId("healthy"), pairs=(("number", label),))])
        committed[label] = time.perf_counter()
    await receivers.all_of(list(committed))
    # a webhook may arrive before the commit's confirmation has been read
    return Round.of([max(0.0, receivers.arrivals[label] - at) for label, at in committed.items()])


async def _with(database_url: str, stuck: DestinationId, backlog: int) -> None:
    async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as connection:
        await connection.execute(
            "INSERT INTO messages (id, type, form_id, body) VALUES ('evt_backlog', 'bench', 'hanging', '{}')"
            " ON CONFLICT DO NOTHING"
        )
        await connection.execute(
            "INSERT INTO deliveries (id, message_id, destination_id, state, attempt_count, cycle_attempt_count,"
            " lost_in_a_row, due_at, ready, created_at)"
            " SELECT 'dlv_' || gen_random_uuid(), 'evt_backlog', %s, 'pending', 0, 0, 0, now(), TRUE, now()"
            " FROM generate_series(1, %s)",
            [stuck, backlog],
        )


async def _without(database_url: str, stuck: DestinationId) -> None:
    async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as connection:
        await connection.execute("DELETE FROM deliveries WHERE destination_id = %s", [stuck])
        await connection.execute("VACUUM deliveries, attempts")


def measure(server: Server, effort: Effort) -> list[Figure]:
    backlog, submissions = effort.choose((100_000, 300), (10_000, 20))
    with server.database() as database:
        alone, beside = asyncio.run(
            _measure(database.url, backlog=backlog, rounds=effort.rounds, submissions=submissions)
        )
    return [
        Figure(
            group="isolation",
            name=f"beside {backlog:,} of one that hangs, p50",
            unit="ms",
            rounds=tuple(one.p50 for one in beside),
            limit=Limit("alone", tuple(one.p50 for one in alone)),
        ),
        Figure(
            group="isolation",
            name=f"beside {backlog:,} of one that hangs, p99",
            unit="ms",
            rounds=tuple(one.p99 for one in beside),
            limit=Limit("alone", tuple(one.p99 for one in alone)),
            target=_MOST_OF_ALONE,
        ),
    ]
