"""Receivers of webhooks in a process of their own, so lean that the sender is the limit."""

import asyncio
import multiprocessing
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import cast

import uvloop

_ANSWER = (
    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 15\r\n\r\n" + b'{"status":"ok"}'
)
_LOOK_AGAIN_SECONDS = 0.05


@dataclass(slots=True)
class Counts:
    """`first` and `last` are the monotonic times of requests; `arrivals` those of each submitted number."""

    connections: int = 0
    requests: int = 0
    first: float = 0.0
    last: float = 0.0
    arrivals: dict[int, float] = field(default_factory=dict)

    @property
    def per_second(self) -> float:
        return (self.requests - 1) / (self.last - self.first)


@dataclass(frozen=True, slots=True)
class Receivers:
    ports: list[int]
    _control: Connection

    @property
    def urls(self) -> list[str]:
        return [f"http://127.0.0.1:{port}/hook" for port in self.ports]

    def counted(self) -> Counts:
        """Since the last `count_anew`, without the arrivals."""
        return self._ask("counted")

    def arrivals(self) -> dict[int, float]:
        return self._ask("arrivals").arrivals

    def count_anew(self) -> None:
        self._ask("anew")

    def have(self, requests: int, *, within: float) -> Counts:
        """The counts once there were so many requests. Raises `TimeoutError` with how far it came."""
        deadline = time.monotonic() + within
        while (counts := self.counted()).requests < requests:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{counts.requests:,} of {requests:,} webhooks after {within:g} s")
            time.sleep(_LOOK_AGAIN_SECONDS)
        return counts

    def _ask(self, question: str) -> Counts:
        self._control.send(question)
        counts: Counts = self._control.recv()
        return counts


@contextmanager
def receivers(number: int) -> Iterator[Receivers]:
    """As many listening sockets, in one process."""
    context = multiprocessing.get_context("spawn")
    control, theirs = context.Pipe()
    process = context.Process(target=_run, args=(number, theirs))
    process.start()
    try:
        # or the end of this process would not be seen there
        theirs.close()
        yield Receivers(control.recv(), control)
    finally:
        control.close()
        process.join(5)
        process.kill()


def _run(number: int, control: Connection) -> None:
    uvloop.run(_receive(number, control))


async def _receive(number: int, control: Connection) -> None:
    loop = asyncio.get_running_loop()
    counts = Counts()
    servers = [
        await loop.create_server(lambda: _Receiver(counts), "127.0.0.1", 0, backlog=1024)
        for _ in range(number)
    ]
    control.send([server.sockets[0].getsockname()[1] for server in servers])
    over = loop.create_future()

    def report() -> None:
        try:
            match control.recv():
                case "anew":
                    counts.connections = counts.requests = 0
                    counts.first = counts.last = 0.0
                    counts.arrivals = {}
                    control.send(Counts())
                case "arrivals":
                    control.send(counts)
                case _:
                    control.send(Counts(counts.connections, counts.requests, counts.first, counts.last))
        except (EOFError, OSError):
            # whoever measures has ended, in one way or the other
            loop.remove_reader(control.fileno())
            over.set_result(None)

    loop.add_reader(control.fileno(), report)
    # uvloop takes that from whatever it watches, and a long answer would end half-way
    os.set_blocking(control.fileno(), True)
    await over


class _Receiver(asyncio.Protocol):
    """Answers each request of known length with 200."""

    def __init__(self, counts: Counts) -> None:
        self._counts = counts
        self._unread = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._counts.connections += 1

    def data_received(self, data: bytes) -> None:
        self._unread += data
        head, found, body = self._unread.partition(b"\r\n\r\n")
        if not found:
            return
        _, _, length = head.lower().partition(b"content-length: ")
        if len(body) < int(length.split(b"\r\n", 1)[0]):
            return
        self._unread = b""
        counts = self._counts
        counts.requests += 1
        counts.last = time.perf_counter()
        counts.first = counts.first or counts.last
        _, numbered, after = body.partition(b'"number":["')
        if numbered:
            counts.arrivals[int(after[: after.index(b'"')])] = counts.last
        self._transport.write(_ANSWER)
