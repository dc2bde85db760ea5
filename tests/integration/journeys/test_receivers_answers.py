"""What a receiver answers, and what a delivery comes to."""

import asyncio
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from tests.receivers import Receiver, answer, drip, flood, hold
from tests.site import Running, Site, until, verified

MIB = 1024 * 1024


async def test_two_500_and_then_200_are_three_attempts_of_the_same_bytes_each_signed_anew(site: Site) -> None:
    site.configure(webhook_retry_schedule="1.5s 1.5s")
    site.start_api()
    site.start_worker()
    async with Receiver(answer(500, body=b"not now"), answer(500), answer(200, body=b"thanks")) as receiver:
        (secret,) = site.make_form(receiver.url())
        delivery = await site.ended_delivery_of(site.post())
        requests = receiver.requests

    assert [verified(request, secret)["type"] for request in requests] == ["submission.received"] * 3
    assert len({request.body for request in requests}) == 1
    assert {request.header("webhook-id")[0] for request in requests} == {delivery["message_id"]}
    assert [request.header("hymical-attempt") for request in requests] == [["1"], ["2"], ["3"]]
    # 1.5 s less 20 % in between: no two requests fall into one second of the clock
    stamps = [int(request.header("webhook-timestamp")[0]) for request in requests]
    assert stamps == sorted(stamps)
    assert len(set(stamps)) == 3
    assert all(later.arrived - sooner.arrived > 1.2 for sooner, later in pairwise(requests))
    assert delivery["state"] == "delivered"
    assert (delivery["attempt_count"], delivery["cycle_attempt_count"]) == (3, 3)
    assert [
        (attempt["outcome"], attempt["response_status"], attempt["response_excerpt"])
        for attempt in delivery["attempts"]
    ] == [("http_error", 500, "not now"), ("http_error", 500, None), ("succeeded", 200, "thanks")]


async def test_the_last_retry_in_vain_ends_a_delivery_as_exhausted(site: Site) -> None:
    site.configure(webhook_retry_schedule="100ms 100ms")
    site.start_api()
    site.start_worker()
    async with Receiver(answer(503)) as receiver:
        site.make_form(receiver.url())
        delivery = await site.ended_delivery_of(site.post())
        assert len(receiver.requests) == 3

    assert (delivery["state"], delivery["failure_reason"]) == ("failed", "exhausted")
    assert [attempt["outcome"] for attempt in delivery["attempts"]] == ["http_error"] * 3


async def test_a_slow_receiver_holds_up_nobody_and_is_settled_although_others_were_settled_before(
    site: Site,
) -> None:
    site.configure(worker_batch_size="3")
    site.start_api()
    released = asyncio.Event()
    async with Receiver(hold(released, answer(200))) as slow, Receiver() as quick:
        site.make_form(slow.url(), quick.url(), quick.url("/other"))
        await site.accept(1)
        # started afterwards, so that one claim takes all three
        await site.start_workers(1)
        await slow.arrival(1)
        await until(lambda: site.states() == {"delivered": 2, "processing": 1}, "the quick ones are settled")
        released.set()
        await until(lambda: site.states() == {"delivered": 3}, "the slow one is settled")
        assert len(quick.requests) == 2


async def test_404_fails_at_once(site: Site) -> None:
    site.start_api()
    site.start_worker()
    async with Receiver(answer(404)) as receiver:
        site.make_form(receiver.url())
        delivery = await site.ended_delivery_of(site.post())
        assert len(receiver.requests) == 1

    assert (delivery["state"], delivery["failure_reason"]) == ("failed", "rejected")
    assert delivery["next_attempt_at"] is None
    assert [(attempt["outcome"], attempt["response_status"]) for attempt in delivery["attempts"]] == [
        ("http_error", 404)
    ]


async def test_302_is_not_followed(site: Site) -> None:
    site.start_api()
    site.start_worker()
    async with Receiver() as elsewhere, Receiver(answer(302, [("location", elsewhere.url())])) as receiver:
        site.make_form(receiver.url())
        delivery = await site.ended_delivery_of(site.post())
        assert len(receiver.requests) == 1
        assert elsewhere.requests == []

    assert (delivery["state"], delivery["failure_reason"]) == ("failed", "rejected")
    assert "redirects are not followed" in delivery["attempts"][0]["error"]


async def test_410_disables_the_destination_so_that_the_next_delivery_fails_unsent(site: Site) -> None:
    site.start_api()
    site.start_worker()
    async with Receiver(answer(410)) as receiver:
        site.make_form(receiver.url())
        gone = await site.ended_delivery_of(site.post())
        unsent = await site.ended_delivery_of(site.post())
        assert len(receiver.requests) == 1

    assert (gone["state"], gone["failure_reason"]) == ("failed", "gone")
    assert (unsent["state"], unsent["failure_reason"]) == ("failed", "destination_disabled")
    assert unsent["attempts"] == []
    assert site.read(f"/destinations/{gone['destination_id']}")["state"] == "disabled"


async def test_one_byte_a_second_is_cut_at_the_total_deadline(site: Site) -> None:
    site.configure(
        webhook_connect_timeout_seconds="0.5", webhook_read_timeout_seconds="1.8", webhook_retry_schedule="1h"
    )
    site.start_api()
    site.start_worker()
    async with Receiver(
        drip(b"x" * 30, at_once=b"HTTP/1.1 200 OK\r\ncontent-length: 30\r\n\r\n", gap=1)
    ) as receiver:
        site.make_form(receiver.url())
        submission = site.post()
        await until(lambda: bool(site.delivery_of(submission)["attempts"]), "the attempt ends")
        delivery = site.delivery_of(submission)

    assert (delivery["state"], delivery["cycle_attempt_count"]) == ("pending", 1)
    (attempt,) = delivery["attempts"]
    assert attempt["outcome"] == "timeout"
    assert attempt["error"] == "the total deadline of 2.3 s passed"
    assert 2_300 <= attempt["duration_ms"] < 4_000


@pytest.mark.skipif(sys.platform != "linux", reason="the peak of a process's memory is read from /proc")
async def test_a_stream_of_100_mb_grows_the_worker_by_less_than_8_mib(site: Site) -> None:
    size = 100 * 1000 * 1000
    site.start_api()
    worker = site.start_worker()
    async with Receiver(answer(200), flood(size)) as receiver:
        site.make_form(receiver.url())
        await site.ended_delivery_of(site.post())
        before = resident_now(worker)

        delivery = await site.ended_delivery_of(site.post())
        await asyncio.wait_for(receiver.wires[-1].gone.wait(), 10)
        sent = receiver.wires[-1].sent
        grown = resident_at_most(worker) - before

    assert delivery["state"] == "delivered"
    assert delivery["attempts"][0]["response_status"] == 200
    assert sent < size / 2
    assert grown < 8 * MIB


def resident_now(process: Running) -> int:
    return _status(process, "VmRSS")


def resident_at_most(process: Running) -> int:
    """The peak, however short it was."""
    return _status(process, "VmHWM")


def _status(process: Running, name: str) -> int:
    lines = Path(f"/proc/{process.pid}/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))
