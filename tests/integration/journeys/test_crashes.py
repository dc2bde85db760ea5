"""What a killed or stopped process leaves to the others."""

import asyncio
import itertools
import random
from collections import Counter
from collections.abc import Callable

import httpx

from tests.receivers import Receiver, answer, hang, hold
from tests.site import Running, Site, stopped, until

SHORT = {
    "webhook_connect_timeout_seconds": "0.3",
    "webhook_read_timeout_seconds": "0.5",
    "worker_lease_seconds": "3",
}


async def test_what_was_accepted_is_delivered_although_the_api_is_killed_right_after_the_answer(
    site: Site,
) -> None:
    api = site.start_api()
    accepted: list[str] = []

    async def post_until_it_dies(client: httpx.AsyncClient) -> None:
        while api.lives:
            try:
                answered = await client.post("/f/contact", data={"email": "zoe@example.com"})
            except httpx.TransportError:
                return
            assert answered.status_code == 202
            accepted.append(answered.json()["submission_id"])
            if len(accepted) == 20:
                api.dies()

    async with Receiver() as receiver:
        site.make_form(receiver.url())
        async with httpx.AsyncClient(base_url=site.api_url, trust_env=False) as client:
            await asyncio.gather(*(post_until_it_dies(client) for _ in range(8)))
        assert len(accepted) >= 20
        assert receiver.requests == []

        await site.start_workers(1)

        def all_arrived() -> bool:
            bodies = [request.body for request in receiver.requests]
            return all(any(one.encode() in body for body in bodies) for one in accepted)

        await until(all_arrived, "everything accepted is delivered")
        # a post whose answer was cut off may have been stored as well
        await until(lambda: set(site.states()) == {"delivered"}, "nothing is left over")


async def test_killing_the_api_at_any_moment_under_load_loses_nothing_that_was_answered_with_202(
    site: Site,
) -> None:
    dice = random.Random(4)  # noqa: S311  # a test that repeats
    moments = [(dice.choice(["sent", "answered"]), dice.randint(1, 150)) for _ in range(5)]
    confirmed: dict[str, list[str]] = {}
    numbers = itertools.count()

    async def post_until_it_dies(client: httpx.AsyncClient, happened: Callable[[str], None]) -> None:
        while True:
            value = str(next(numbers))
            happened("sent")
            try:
                answered = await client.post("/f/contact", data={"number": value})
            except httpx.TransportError:
                return
            assert answered.status_code == 202
            confirmed[answered.json()["submission_id"]] = [value]
            happened("answered")

    for moment in moments:
        api, seen = site.start_api(), Counter[str]()
        if not site.count("forms"):
            site.make_form("http://127.0.0.1:9/nobody")

        def happened(
            what: str,
            api: Running = api,
            seen: Counter[str] = seen,
            moment: tuple[str, int] = moment,
        ) -> None:
            seen[what] += 1
            if (what, seen[what]) == moment:
                api.dies()

        async with httpx.AsyncClient(base_url=site.api_url, trust_env=False) as client:
            await asyncio.gather(*(post_until_it_dies(client, happened) for _ in range(16)))

    stored = dict(site.query("SELECT id, fields -> 'number' FROM submissions"))
    assert len(confirmed) > 100
    assert {one: stored.get(one) for one in confirmed} == confirmed
    # what was cut off is there as a whole, or not at all
    assert site.count("messages") == site.count("deliveries", "state = 'pending'") == len(stored)
    assert len({value for (value,) in stored.values()}) == len(stored)


async def test_another_worker_delivers_what_a_killed_one_was_sending(site: Site) -> None:
    site.configure(**SHORT)
    site.start_api()
    async with Receiver(hang, answer(200)) as receiver:
        site.make_form(receiver.url())
        (victim,) = await site.start_workers(1)
        submission_id = site.post()
        await receiver.arrival(1)
        victim.dies()

        await site.start_workers(1)
        delivery = await site.ended_delivery_of(submission_id)

    assert delivery["state"] == "delivered"
    assert delivery["attempt_count"] == 2
    assert delivery["cycle_attempt_count"] == 1
    assert [(attempt["number"], attempt["outcome"]) for attempt in delivery["attempts"]] == [
        (1, "lease_lost"),
        (2, "succeeded"),
    ]
    assert delivery["attempts"][0]["duration_ms"] is None
    assert [request.header("hymical-attempt") for request in receiver.requests] == [["1"], ["2"]]
    assert len({request.body for request in receiver.requests}) == 1


async def test_a_worker_that_stood_still_past_its_lease_overwrites_nothing_and_completes_its_own_attempt(
    site: Site,
) -> None:
    site.configure(**SHORT)
    site.start_api()
    never = asyncio.Event()
    async with Receiver(hold(never, answer(200)), answer(200)) as receiver:
        site.make_form(receiver.url())
        (sleeper,) = await site.start_workers(1)
        submission_id = site.post()
        await receiver.arrival(1)
        with stopped(sleeper):
            await site.start_workers(1)
            before = await site.ended_delivery_of(submission_id)
        await until(lambda: sleeper.says("its lease was lost"), "the overtaken worker says so")
        after = site.delivery_of(submission_id)

    assert [(attempt["number"], attempt["outcome"]) for attempt in before["attempts"]] == [
        (1, "lease_lost"),
        (2, "succeeded"),
    ]
    # its own attempt ran into the deadline, which would have meant another try
    assert [(attempt["number"], attempt["outcome"]) for attempt in after["attempts"]] == [
        (1, "timeout"),
        (2, "succeeded"),
    ]
    assert after["attempts"][0]["duration_ms"] > 2_000
    assert after | {"attempts": []} == before | {"attempts": []}
    (warning,) = sleeper.complaints()
    assert f"delivery {after['id']}: its lease was lost before its attempt ended" in warning
    assert "FORMS_WORKER_LEASE_SECONDS is too short for it, or this process stood still" in warning
