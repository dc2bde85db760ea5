"""Each queue of jobs that is measured, in a process of its own: `python -m bench.job_peers QUEUE STEP URL …`.

Every step begins its clock when everything is loaded and connected, and prints one line of JSON.
"""

import asyncio
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any, Protocol

import uvloop
from psycopg.conninfo import conninfo_to_dict

from hymical.domain.jobs import NewJob

QUEUE = "bench"
_WORKING = {"drain", "serve"}
BULK = 1_000


class Peer(Protocol):
    """One queue of jobs. Handlers do nothing but tell when they began."""

    async def open(self, url: str, stack: AsyncExitStack) -> None: ...

    async def install(self) -> None: ...

    async def enqueue_one(self, number: int) -> None: ...

    async def enqueue_many(self, numbers: range) -> None: ...

    async def work(self, concurrency: int, handle: Callable[[int], None], over: asyncio.Event) -> None:
        """Works until nothing is left, or it is over, or it is cancelled."""
        ...


class Hymical:
    """As `hymical worker --queue bench` does it; one that is idle waits for its wake-up."""

    async def open(self, url: str, stack: AsyncExitStack) -> None:
        from hymical.entrypoints.bootstrap.resources import open_container  # noqa: PLC0415
        from hymical.entrypoints.bootstrap.settings import load_settings  # noqa: PLC0415

        os.environ |= {"FORMS_DATABASE_URL": url, "FORMS_JOB_MODULES": "bench.job_types"}
        if sys.argv[2] in _WORKING:
            os.environ["FORMS_JOB_CONCURRENCY"] = sys.argv[4]
        self._container = await stack.enter_async_context(open_container(load_settings()))
        self._queue, self._ids = self._container.job_queue(), self._container.ids()
        self._catalog = self._container.job_catalog()
        # it connects when it is first used; the others are connected by now
        await self._container.job_history().queues()

    async def install(self) -> None:
        """Its schema is there: the server of the benchmark migrates each database."""

    def _job(self, number: int) -> NewJob:
        return self._catalog.job("bench_noop", {"number": number}, id=self._ids.job())

    async def enqueue_one(self, number: int) -> None:
        await self._queue.enqueue([self._job(number)])

    async def enqueue_many(self, numbers: range) -> None:
        await self._queue.enqueue([self._job(number) for number in numbers])

    async def work(self, concurrency: int, handle: Callable[[int], None], over: asyncio.Event) -> None:
        from bench import job_types  # noqa: PLC0415
        from hymical.entrypoints.worker.run import job_worker  # noqa: PLC0415

        del concurrency  # it stands in the settings
        job_types.handle = handle
        worker = job_worker(self._container, [QUEUE])
        stopping = asyncio.create_task(_after(over, worker.stop))
        await worker.run()
        await stopping


class Procrastinate:
    async def open(self, url: str, stack: AsyncExitStack) -> None:
        import procrastinate  # noqa: PLC0415

        room = int(sys.argv[4]) if sys.argv[2] in _WORKING else 1
        self._app = procrastinate.App(
            connector=procrastinate.PsycopgConnector(conninfo=url, min_size=2, max_size=room + 3)
        )
        self._handle: Callable[[int], None] = lambda _: None

        @self._app.task(queue=QUEUE, name="noop")
        async def noop(number: int) -> None:
            self._handle(number)

        self._noop = noop
        await stack.enter_async_context(self._app.open_async())

    async def install(self) -> None:
        await self._app.schema_manager.apply_schema_async()

    async def enqueue_one(self, number: int) -> None:
        await self._noop.defer_async(number=number)

    async def enqueue_many(self, numbers: range) -> None:
        jobs: list[dict[str, Any]] = [{"number": number} for number in numbers]
        await self._noop.batch_defer_async(*jobs)

    async def work(self, concurrency: int, handle: Callable[[int], None], over: asyncio.Event) -> None:
        del over  # it ends by itself, or is cancelled
        self._handle = handle
        waits = sys.argv[2] == "serve"
        await self._app.run_worker_async(
            queues=[QUEUE],
            concurrency=concurrency,
            wait=waits,
            listen_notify=waits,
            install_signal_handlers=False,
            delete_jobs="never",
        )


class PgQueuer:
    async def open(self, url: str, stack: AsyncExitStack) -> None:
        import asyncpg  # type: ignore[import-untyped]  # noqa: PLC0415
        from pgqueuer import AsyncpgDriver, Queries  # noqa: PLC0415
        from pgqueuer import PgQueuer as Application  # noqa: PLC0415

        # it does not read a socket's folder out of an address as libpq does
        place = conninfo_to_dict(url)
        connection = await asyncpg.connect(
            host=place["host"],
            port=place.get("port"),
            user=place.get("user"),
            database=place["dbname"],
            password=place.get("password"),
        )
        stack.push_async_callback(connection.close)
        self._driver = AsyncpgDriver(connection)
        self._queries = Queries(self._driver)
        self._application = Application(self._driver)

    async def install(self) -> None:
        await self._queries.install()

    async def enqueue_one(self, number: int) -> None:
        await self._queries.enqueue("noop", str(number).encode(), 0)

    async def enqueue_many(self, numbers: range) -> None:
        payloads: list[bytes | None] = [str(number).encode() for number in numbers]
        await self._queries.enqueue(["noop"] * len(numbers), payloads, [0] * len(numbers))

    async def work(self, concurrency: int, handle: Callable[[int], None], over: asyncio.Event) -> None:
        del over  # it ends by itself, or is cancelled
        from pgqueuer import Job  # noqa: PLC0415
        from pgqueuer.types import QueueExecutionMode  # noqa: PLC0415

        @self._application.entrypoint("noop")
        async def noop(job: Job) -> None:
            handle(int(job.payload or b""))

        await self._application.run(
            batch_size=max(1, concurrency // 2),
            max_concurrent_tasks=max(2, concurrency),
            mode=QueueExecutionMode.continuous if sys.argv[2] == "serve" else QueueExecutionMode.drain,
        )


PEERS: dict[str, Callable[[], Any]] = {
    "hymical": Hymical,
    "procrastinate": Procrastinate,
    "pgqueuer": PgQueuer,
}


async def install(peer: Peer) -> dict[str, Any]:
    await peer.install()
    return {}


async def enqueue_single(peer: Peer, count: str) -> dict[str, Any]:
    return {"seconds": await _timed(peer.enqueue_one, range(int(count)))}


async def enqueue_bulk(peer: Peer, count: str) -> dict[str, Any]:
    starts = range(0, int(count), BULK)
    seconds = await _timed(
        lambda start: peer.enqueue_many(range(start, min(start + BULK, int(count)))), starts
    )
    return {"seconds": seconds}


async def enqueue_paced(peer: Peer, count: str, pause: str) -> dict[str, Any]:
    """One after the other with a pause, and when each enqueuing began."""
    began = []
    for number in range(int(count)):
        await asyncio.sleep(float(pause))
        began.append(time.monotonic())
        await peer.enqueue_one(number)
    return {"began": began}


async def drain(peer: Peer, concurrency: str, count: str, seconds: str) -> dict[str, Any]:
    """Until that many handlers ran, or the time is over."""
    done, last, over = 0, 0.0, asyncio.Event()

    def handle(_: int) -> None:
        nonlocal done, last
        done, last = done + 1, time.monotonic()
        if done >= int(count):
            over.set()

    began = time.monotonic()
    working = asyncio.ensure_future(peer.work(int(concurrency), handle, over))
    await asyncio.wait({working}, timeout=float(seconds))
    # what is left of the time once nothing is left to do is nobody's
    elapsed, ran = last - began, done
    await _ended(working, over)
    return {"seconds": elapsed, "ran": ran}


async def serve(peer: Peer, concurrency: str, count: str) -> dict[str, Any]:
    """Works until that many handlers ran, and tells when each began."""
    began: dict[int, float] = {}
    over = asyncio.Event()

    def handle(number: int) -> None:
        began.setdefault(number, time.monotonic())
        if len(began) == int(count):
            over.set()

    working = asyncio.ensure_future(peer.work(int(concurrency), handle, over))
    print("ready", flush=True)
    waiting = asyncio.ensure_future(over.wait())
    await asyncio.wait({working, waiting}, timeout=60, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    await _ended(working, over)
    return {"began": [began.get(number) for number in range(int(count))]}


STEPS: dict[str, Callable[..., Awaitable[dict[str, Any]]]] = {
    "install": install,
    "enqueue_single": enqueue_single,
    "enqueue_bulk": enqueue_bulk,
    "enqueue_paced": enqueue_paced,
    "drain": drain,
    "serve": serve,
}


async def _after(over: asyncio.Event, call: Callable[[], None]) -> None:
    await over.wait()
    call()


async def _ended(working: asyncio.Future[None], over: asyncio.Event) -> None:
    over.set()
    await asyncio.wait({working}, timeout=2)
    working.cancel()
    await asyncio.gather(working, return_exceptions=True)


async def _timed(call: Callable[[int], Awaitable[None]], numbers: range) -> float:
    began = time.monotonic()
    for number in numbers:
        await call(number)
    return time.monotonic() - began


async def main() -> None:
    name, step, url, *arguments = sys.argv[1:]
    peer = PEERS[name]()
    async with AsyncExitStack() as stack:
        await peer.open(url, stack)
        print(json.dumps(await STEPS[step](peer, *arguments)), flush=True)


if __name__ == "__main__":
    uvloop.run(main())
