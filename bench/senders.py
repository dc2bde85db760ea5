"""Measures both senders of webhooks against receivers on loopback: `python -m bench.senders`."""

import argparse
import asyncio
import itertools
import json
import os
import platform
import random
import time
from datetime import timedelta
from ipaddress import ip_network

import uvloop

from bench.receivers import receivers
from hymical.adapters.http.aiohttp_sender import AiohttpWebhookSender
from hymical.adapters.http.egress import Egress
from hymical.adapters.http.httpx_sender import HttpxWebhookSender
from hymical.domain.outcomes import Accepted
from hymical.ports.deliveries import WebhookRequest, WebhookSender

SENDERS: dict[str, type[HttpxWebhookSender | AiohttpWebhookSender]] = {
    "httpx": HttpxWebhookSender,
    "aiohttp": AiohttpWebhookSender,
}
BODY = json.dumps({"type": "submission.created", "data": {"name": "Jo", "message": "x" * 700}}).encode()
HEADERS = (
    ("content-type", "application/json"),
    ("webhook-id", "msg_2mQ7bTzXw4v9"),
    ("webhook-timestamp", "1796000000"),
    ("webhook-signature", "v1,K5oZfzN95Z9UVu1EsfQmfVNQhnkZ2pj9o9NDN/H/pI4="),
)
WARM_UP = 2_000
PATIENCE = timedelta(seconds=5)


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
    with receivers(destinations) as listening:

        def urls(count: int) -> list[str]:
            return dice.choices(listening.urls, k=count)

        egress = Egress(allowed_networks=(ip_network("127.0.0.0/8"),))
        async with SENDERS[kind](egress=egress, connect_timeout=PATIENCE, read_timeout=PATIENCE) as sender:
            await send_all(sender, urls(WARM_UP), in_flight)
            before = listening.counted()
            took, used = await send_all(sender, urls(options.requests), in_flight)
            after = listening.counted()
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
