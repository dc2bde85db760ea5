"""SIGTERM: what is under way ends, nothing else begins."""

import asyncio
import signal

import httpx

from tests.receivers import Receiver, answer, hold
from tests.site import Site, until


async def test_a_worker_told_to_stop_lets_requests_in_flight_end_and_leaves_the_rest_to_others(
    site: Site,
) -> None:
    site.configure(worker_concurrency="5", worker_batch_size="5")
    site.start_api()
    released = asyncio.Event()
    async with Receiver(hold(released, answer(200))) as receiver:
        site.make_form(receiver.url())
        (worker,) = await site.start_workers(1)
        await site.accept(12)
        await receiver.arrival(5)

        worker.send(signal.SIGTERM)
        assert site.states() == {"processing": 5, "pending": 7}
        released.set()
        code = await worker.ended()

    assert code == 0
    assert site.states() == {"delivered": 5, "pending": 7}
    assert site.count("attempts") == 5
    assert site.count("deliveries", "state = 'pending' AND attempt_count = 0") == 7
    assert worker.says("worker stopped")
    assert worker.complaints() == []


async def test_an_idle_worker_stops_at_once_however_long_it_polls(site: Site) -> None:
    site.configure(worker_poll_seconds="1h")
    (worker,) = await site.start_workers(1)
    worker.send(signal.SIGTERM)
    assert await worker.ended(5) == 0


async def test_the_api_told_to_stop_under_load_has_stored_every_post_that_it_accepted(site: Site) -> None:
    api = site.start_api()
    site.make_form("http://127.0.0.1:9/nobody")
    accepted: list[str] = []
    refused: list[int] = []

    async def post_until_it_is_gone(client: httpx.AsyncClient) -> None:
        while True:
            try:
                answered = await client.post("/f/contact", data={"email": "zoe@example.com"})
            except httpx.TransportError:
                return
            if answered.status_code == 202:
                accepted.append(answered.json()["submission_id"])
            else:
                refused.append(answered.status_code)

    async with (
        httpx.AsyncClient(base_url=site.api_url, trust_env=False) as client,
        asyncio.TaskGroup() as posting,
    ):
        for _ in range(16):
            posting.create_task(post_until_it_is_gone(client))
        await until(lambda: len(accepted) >= 100, "posts are being accepted")
        api.send(signal.SIGTERM)

    assert await api.ended() == 0
    assert refused == []
    stored = {submission_id for (submission_id,) in site.query("SELECT id FROM submissions")}
    assert len(accepted) >= 100
    assert stored >= set(accepted)
    assert site.states() == {"pending": len(stored)}
    assert api.complaints() == []
