"""Many workers on one queue."""

import asyncio
from collections import Counter

import psutil  # type: ignore[import-untyped]  # it ships no types

from tests.receivers import Receiver
from tests.site import Running, Site, until

DELIVERIES = 2_000
LONGEST_SECONDS = 60


async def test_two_four_and_eight_workers_deliver_each_of_2000_exactly_once(site: Site) -> None:
    workers: list[Running] = []
    site.configure(worker_poll_seconds="1")
    site.start_api()
    async with Receiver() as receiver:
        site.make_form(receiver.url(), max_in_flight=100)
        for total in (2, 4, 8):
            workers += await site.start_workers(total - len(workers))
            before = len(receiver.requests)

            await site.accept(DELIVERIES)
            await asyncio.wait_for(receiver.arrival(before + DELIVERIES), LONGEST_SECONDS)
            await until(
                lambda: set(site.states()) == {"delivered"},
                f"{total} workers deliver everything",
                LONGEST_SECONDS,
            )

            arrived = receiver.requests[before:]
            sent = Counter(request.header("webhook-id")[0] for request in arrived)
            owed = {
                message_id
                for (message_id,) in site.query("SELECT id FROM messages ORDER BY id DESC LIMIT 2000")
            }
            assert sent.keys() == owed
            assert set(sent.values()) == {1}
            assert senders(receiver, workers, since=before) == {worker.pid for worker in workers}

        assert site.count("attempts", "outcome = 'succeeded' AND number = 1") == 3 * DELIVERIES
        assert site.count("attempts") == 3 * DELIVERIES
        assert site.count("deliveries", "attempt_count = 1") == 3 * DELIVERIES
        assert all(worker.lives for worker in workers)
        assert [worker.complaints() for worker in workers] == [[]] * 8


def senders(receiver: Receiver, workers: list[Running], *, since: int) -> set[int]:
    """The workers, by pid, whose requests came after the first `since`; their connections are kept alive."""
    owners = {
        connection.laddr.port: worker.pid
        for worker in workers
        for connection in psutil.Process(worker.pid).net_connections("tcp")
    }
    ports = [wire.writer.get_extra_info("peername")[1] for wire in receiver.wires]
    used = {ports[request.connection - 1] for request in receiver.requests[since:]}
    return {owners[port] for port in used if port in owners}
