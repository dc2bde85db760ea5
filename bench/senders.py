"""Measures both senders of webhooks against receivers on loopback: `.venv/bin/python bench/senders.py`."""

import argparse
import asyncio
import itertools
import json
import multiprocessing
import os
import platform
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from ipaddress import ip_network
from multiprocessing.connection import Connection
from typing import cast

import uvloop

from hymical.adapters.http.aiohttp_sender import AiohttpWebhookSender
from hymical.adapters.http.egress import Egress
from hymical.adapters.http.httpx_sender import HttpxWebhookSender
from hymical.domain.outcomes import Accepted
from hymical.ports.deliveries import WebhookRequest, WebhookSender

SENDERS: dict[str, type[HttpxWebhookSender | AiohttpWebhookSender]] = {
    "httpx": HttpxWebhookSender,
    "aiohttp": AiohttpWebhookSender,
}
ANSWER = (
    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 15\r\n\r\n" + b'{"status":"ok"}'
)
BODY = json.dumps({"type": "submission.created", "data": {"name": "Jo", "message": "x" * 700}}).encode()
HEADERS = (
    ("content-type", "application/json"),
    ("webhook-id", "msg_2mQ7bTzXw4v9"),
    ("webhook-timestamp", "1796000000"),
    ("webhook-signature", "v1,K5oZfzN95Z9UVu1EsfQmfVNQhnkZ2pj9o9NDN/H/pI4="),
)
WARM_UP = 2_000
PATIENCE = timedelta(seconds=5)


@dataclass(slots=True)
class Counts:
    connections: int = 0
    requests: int = 0


class Receiver(asyncio.Protocol):
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
        if len(body) >= int(length.split(b"\r\n", 1)[0]):
            self._unread = b""
            self._counts.requests += 1
            self._transport.write(ANSWER)


async def receive(number: int, control: Connection) -> None:
    """Listens on `number` ports, says which, and reports what was counted whenever it is asked."""
    loop = asyncio.get_running_loop()
    counts = Counts()
    servers = [
        await loop.create_server(lambda: Receiver(counts), "127.0.0.1", 0, backlog=1024)
        for _ in range(number)
    ]
    control.send([server.sockets[0].getsockname()[1] for server in servers])
    over = loop.create_future()

    def report() -> None:
        try:
            control.recv()
            control.send((counts.connections, counts.requests))
        except (EOFError, OSError):
            # whoever measures has ended, in one way or the other
            loop.remove_reader(control.fileno())
            over.set_result(None)

    loop.add_reader(control.fileno(), report)
    await over


def run_receivers(number: int, control: Connection) -> None:
    uvloop.run(receive(number, control))


@contextmanager
def receivers(number: int) -> Iterator[tuple[list[int], Connection]]:
    """Their ports, and the control of the process that they run in."""
    context = multiprocessing.get_context("spawn")
    control, theirs = context.Pipe()
    process = context.Process(target=run_receivers, args=(number, theirs))
    process.start()
    try:
        # or the end of this process would not be seen there
        theirs.close()
        yield control.recv(), control
    finally:
        control.close()
        process.join(5)
        process.kill()


def counted(control: Connection) -> Counts:
    control.send("report")
    return Counts(*control.recv())


async def send_all(sender: WebhookSender, urls: list[str], in_flight: int) -> tuple[float, float]:
    """Sends to each URL once, keeping so many requests in flight; seconds that it took, and of this process's CPU."""
    waiting = iter(urls)

    async def send_on() -> None:
        for url in waiting:
            said = await sender.send(WebhookRequest(url=url, headers=HEADERS, body=BODY))
            if said.outcome != Accepted():
                raise RuntimeError(said.error)

    started, used = time.perf_counter(), time.process_time()
    await asyncio.gather(*(send_on() for _ in range(in_flight)))
    return time.perf_counter() - started, time.process_time() - used


async def measure(
    kind: str, destinations: int, in_flight: int, options: argparse.Namespace
) -> tuple[float, float, float]:
    """Requests per second, seconds of CPU per request, and the share of requests that reused a connection."""
    dice = random.Random(options.seed)  # noqa: S311 - which destination is next
    with receivers(destinations) as (ports, control):

        def urls(count: int) -> list[str]:
            return [f"http://127.0.0.1:{port}/hook" for port in dice.choices(ports, k=count)]

        egress = Egress(allowed_networks=(ip_network("127.0.0.0/8"),))
        async with SENDERS[kind](egress=egress, connect_timeout=PATIENCE, read_timeout=PATIENCE) as sender:
            await send_all(sender, urls(WARM_UP), in_flight)
            before = counted(control)
            took, used = await send_all(sender, urls(options.requests), in_flight)
            after = counted(control)
    requests = after.requests - before.requests
    return requests / took, used / requests, 1 - (after.connections - before.connections) / requests


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=4_000, help="per run, after 2,000 to warm up")
    parser.add_argument("--rounds", type=int, default=3, help="the median of them counts")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    print(
        f"{platform.python_implementation()} {platform.python_version()}, {os.cpu_count()} cores, {vars(options)}"
    )
    print(
        f"{'destinations':>12} {'in flight':>9}"
        + "".join(f" {kind + ' /s':>12} {'CPU':>7} {'reused':>7}" for kind in SENDERS)
    )
    for destinations, in_flight in itertools.product((1, 200), (1, 10, 64, 100)):
        # in turn, so that what else the machine does meets both
        rounds = [
            {kind: uvloop.run(measure(kind, destinations, in_flight, options)) for kind in SENDERS}
            for _ in range(options.rounds)
        ]
        figures = (sorted(one[kind] for one in rounds)[options.rounds // 2] for kind in SENDERS)
        cells = "".join(
            f" {rate:>12,.0f} {cpu * 1e6:>4,.0f} µs {reused:>7.1%}" for rate, cpu, reused in figures
        )
        print(f"{destinations:>12} {in_flight:>9}{cells}", flush=True)


if __name__ == "__main__":
    main()
