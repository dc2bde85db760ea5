"""A load of unique form posts on kept-alive connections, from a process so lean that the server is the limit."""

import asyncio
import multiprocessing
import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from multiprocessing.connection import Connection
from typing import cast
from urllib.parse import quote_plus

import uvloop

from bench.figures import percentile

_ANSWER_SECONDS = 30.0
_REST = "name=Zo%C3%AB+Jones&topics=billing&topics=api&message=" + quote_plus(
    "Hello,\r\n\r\nI would like to know whether you ship to São Tomé, what that costs, and how long it takes."
    " My order would be for about forty pieces — the blue ones, if you still have them.\r\n\r\nKind regards"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What is posted: for `seconds`, `connections` at a time, each next one when its connection is answered.

    With `per_second` posts are begun at that pace instead, whether or not earlier ones are answered; `connections`
    bounds those at one time. `sources` is how many clients X-Forwarded-For tells of. At most `at_most` are posted.
    """

    port: int
    path: str
    connections: int
    seconds: float
    per_second: float | None = None
    sources: int = 1
    at_most: int = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """Seconds from the post to its answer, one for each; `begun` is the monotonic time of each post, by number."""

    seconds: float
    latencies: list[float]
    begun: dict[int, float]
    refused: dict[int, int]
    """How many were answered with another status than the expected 202 or 204."""

    @property
    def per_second(self) -> float:
        return len(self.latencies) / self.seconds

    def milliseconds(self, percent: int) -> float:
        return percentile(self.latencies, percent) * 1_000


def post(load: Load) -> Answered:
    """Runs the load to its end. Raises `RuntimeError` when a post was refused or left unanswered."""
    context = multiprocessing.get_context("spawn")
    mine, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_post_apart, args=(load, theirs))
    process.start()
    theirs.close()
    try:
        answered: Answered = mine.recv()
    finally:
        mine.close()
        process.join(5)
        process.kill()
    if answered.refused:
        raise RuntimeError(f"not every post was accepted: {answered.refused}")
    return answered


def _post_apart(load: Load, result: Connection) -> None:
    result.send(uvloop.run(_Posting(load).run()))


@dataclass(slots=True)
class _Posting:
    load: Load
    latencies: list[float] = field(default_factory=list)
    begun: dict[int, float] = field(default_factory=dict)
    refused: dict[int, int] = field(default_factory=dict)
    numbers: Iterator[int] = field(default_factory=count)
    idle: "list[_Poster]" = field(default_factory=list)
    ends: float = 0.0
    name: str = field(default_factory=lambda: secrets.token_hex(4))

    async def run(self) -> Answered:
        loop = asyncio.get_running_loop()
        posters = [
            (await loop.create_connection(lambda: _Poster(self), "127.0.0.1", self.load.port))[1]
            for _ in range(self.load.connections)
        ]
        started = time.perf_counter()
        self.ends = started + self.load.seconds
        if self.load.per_second is None:
            for poster in posters:
                poster.post()
        else:
            await self._at_a_pace(posters, self.load.per_second)
        async with asyncio.timeout(self.load.seconds + _ANSWER_SECONDS):
            await asyncio.gather(*(poster.rests() for poster in posters))
        took = time.perf_counter() - started
        for poster in posters:
            poster.close()
        return Answered(seconds=took, latencies=self.latencies, begun=self.begun, refused=self.refused)

    async def _at_a_pace(self, posters: "list[_Poster]", per_second: float) -> None:
        self.idle = posters[:]
        started, posted = time.perf_counter(), 0
        while (now := time.perf_counter()) < self.ends:
            wanted = int((now - started) * per_second)
            while posted < wanted and self.idle:
                self.idle.pop().post()
                posted += 1
            await asyncio.sleep(0.001)

    def goes_on(self) -> bool:
        return (
            self.load.per_second is None
            and time.perf_counter() < self.ends
            and len(self.begun) < self.load.at_most
        )


class _Poster(asyncio.Protocol):
    """One connection; a post at a time."""

    def __init__(self, posting: _Posting) -> None:
        self._posting = posting
        self._unread = b""
        self._began = 0.0
        self._resting = asyncio.Event()
        self._resting.set()
        load = posting.load
        # no two loads post the same, or they would be taken for double clicks
        self._tail = f"run={posting.name}&{_REST}"
        self._head = f"POST {load.path} HTTP/1.1\r\nhost: 127.0.0.1\r\nuser-agent: bench\r\naccept: */*\r\n"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def post(self) -> None:
        number = next(self._posting.numbers)
        source = number % self._posting.load.sources
        body = f"number={number}&email=zoe{number}%40example.com&{self._tail}"
        self._resting.clear()
        self._began = self._posting.begun[number] = time.perf_counter()
        self._transport.write(
            (
                f"{self._head}x-forwarded-for: 10.{source >> 16 & 255}.{source >> 8 & 255}.{source & 255}\r\n"
                "content-type: application/x-www-form-urlencoded\r\n"
                f"content-length: {len(body)}\r\n\r\n{body}"
            ).encode()
        )

    def data_received(self, data: bytes) -> None:
        self._unread += data
        head, found, body = self._unread.partition(b"\r\n\r\n")
        if not found or len(body) < _length(head):
            return
        self._unread = b""
        posting = self._posting
        posting.latencies.append(time.perf_counter() - self._began)
        status = int(head[9:12])
        if status not in {202, 204}:
            posting.refused[status] = posting.refused.get(status, 0) + 1
        if posting.goes_on():
            self.post()
        else:
            self._resting.set()
            posting.idle.append(self)

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        if not self._resting.is_set():
            self._posting.refused[0] = self._posting.refused.get(0, 0) + 1
            self._resting.set()

    async def rests(self) -> None:
        await self._resting.wait()

    def close(self) -> None:
        self._transport.close()


def _length(head: bytes) -> int:
    _, found, after = head.lower().partition(b"content-length: ")
    return int(after.split(b"\r\n", 1)[0]) if found else 0
