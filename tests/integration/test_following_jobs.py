"""Following jobs over HTTP: in order, nothing missed and nothing repeated, whatever is cut off."""

import asyncio
import signal
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, contextmanager
from urllib.parse import urlsplit

import pytest

from hymical.domain.jobs import AskHuman, Errored, Finished, Question
from hymical.domain.progress import StepStatus
from tests.hands import Hands, hands_at
from tests.site import Site, until
from tests.streams import Heard, Stream, following, reading_client

LISTENERS = (
    "SELECT pid FROM pg_stat_activity"
    " WHERE datname = current_database() AND application_name = 'hymical listen'"
)


@pytest.fixture(scope="module")
def site(shared_site: Site) -> Site:
    return shared_site


@pytest.fixture
async def hands(site: Site) -> AsyncIterator[Hands]:
    async with hands_at(site.database_url) as hands:
        yield hands


def numbers(heard: list[Heard]) -> list[str | None]:
    return [one.id for one in heard]


async def one_listens(site: Site) -> None:
    await until(lambda: len(site.query(LISTENERS)) == 1, "one listens")


@contextmanager
def asleep(site: Site, job_id: str) -> Iterator[None]:
    """A reader that asks for the events of a job, and reads nothing."""
    address = urlsplit(site.api_url)
    with socket.create_connection((address.hostname, address.port)) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        connection.sendall(
            f"GET /api/v1/jobs/{job_id}/events HTTP/1.1\r\n"
            f"host: hymical\r\nauthorization: Bearer {site.key}\r\n\r\n".encode()
        )
        yield


async def test_a_reader_hears_each_event_in_order_and_how_it_ended(site: Site, hands: Hands) -> None:
    job = await hands.begin()
    await hands.tell(job, "first", status=StepStatus.STARTED)

    async with following(site, job.id) as stream:
        (first,) = await stream.events(1)
        await hands.tell(job, "second", message={"rows": 2, "of": None})
        (second,) = await stream.events(1)
        await hands.end(job, Finished(result={"rows": 2}))
        (end,) = await stream.rest()

    assert first.content == {
        "number": 1,
        "at": first.content["at"],
        "job_id": job.id,
        "step": "first",
        "status": "started",
    }
    assert second.content["message"] == {"rows": 2, "of": None}
    assert numbers([first, second, end]) == ["1", "2", None]
    assert end.kind == "end"
    assert end.content == {
        "job_id": job.id,
        "state": "completed",
        "result": {"rows": 2},
        "finished_at": end.content["finished_at"],
    }


async def test_a_reader_that_comes_back_goes_on_where_it_was_cut_off(site: Site, hands: Hands) -> None:
    job = await hands.begin()
    await hands.tell(job, "a", "b", "c")
    async with following(site, job.id) as stream:
        before = await stream.events(2)
    await hands.tell(job, "d")
    async with following(site, job.id, after=before[-1].id) as stream:
        behind = await stream.events(2)
        await hands.tell(job, "e")
        behind += await stream.events(1)

    assert [one.content["step"] for one in before + behind] == ["a", "b", "c", "d", "e"]


async def test_whoever_follows_a_job_that_has_ended_hears_all_of_it_at_once(site: Site, hands: Hands) -> None:
    job = await hands.begin()
    await hands.tell(job, *(f"step {number}" for number in range(250)))
    await hands.end(job, Errored(error="out of paper"))

    async with following(site, job.id) as stream:
        *events, end = await stream.rest()
    async with following(site, job.id, after="250") as stream:
        (again,) = await stream.rest()

    assert [one.content["number"] for one in events] == list(range(1, 251))
    assert end == again
    assert (end.content["state"], end.content["failure_reason"], end.content["error"]) == (
        "failed",
        "exhausted",
        "out of paper",
    )


async def test_a_paused_job_keeps_its_streams_open(site: Site, hands: Hands) -> None:
    job = await hands.begin()
    async with following(site, job.id) as stream:
        await hands.end(job, AskHuman(question=Question(key="sure", text="Are you sure?")))
        (paused,) = await stream.events(1)
        answered = site.management.post(f"/jobs/{job.id}/answer", json={"answer": "yes"})
        await hands.end(await hands.claim(), Finished())
        (end,) = await stream.rest()

    assert (paused.content["step"], paused.content["status"]) == ("sure", "paused")
    assert answered.status_code == 200
    assert end.content["state"] == "completed"


async def test_a_cancelled_job_ends_its_streams(site: Site, hands: Hands) -> None:
    job = await hands.begin()
    await hands.tell(job, "a")
    async with following(site, job.id) as stream:
        await stream.events(1)
        assert site.management.post(f"/jobs/{job.id}/cancel").status_code == 200
        (end,) = await stream.rest()
    assert end.content["state"] == "cancelled"


async def test_a_deleted_job_cuts_its_streams_off_and_is_not_found_again(site: Site, hands: Hands) -> None:
    job = await hands.begin()
    await hands.tell(job, "a")
    async with following(site, job.id) as stream:
        await stream.events(1)
        site.execute("DELETE FROM jobs WHERE id = %s", job.id)
        assert await stream.rest() == []
    assert site.management.get(f"/jobs/{job.id}/events").status_code == 404


async def test_hundreds_of_readers_share_one_connection_and_hear_everything(site: Site, hands: Hands) -> None:
    job, other = await hands.begin(), await hands.begin()
    async with reading_client(site) as client, AsyncExitStack() as stack:
        streams: list[Stream] = []
        for number in range(200):
            watched = other if number % 10 == 0 else job
            streams.append(await stack.enter_async_context(following(site, watched.id, client=client)))
        await one_listens(site)
        await hands.tell(job, "a", "b", "c")
        await hands.tell(other, "a")
        assert len(site.query(LISTENERS)) == 1
        await hands.end(job, Finished())
        await hands.end(other, Finished())
        heard = await asyncio.gather(*(stream.rest() for stream in streams))

    for number, one in enumerate(heard):
        assert numbers(one) == (["1", None] if number % 10 == 0 else ["1", "2", "3", None])


async def test_a_lost_listening_connection_loses_no_event(site: Site, hands: Hands) -> None:
    job = await hands.begin()
    async with following(site, job.id) as stream:
        await one_listens(site)
        await hands.tell(job, "a")
        await stream.events(1)
        for (pid,) in site.query(LISTENERS):
            site.query("SELECT pg_terminate_backend(%s)", pid)
        await hands.tell(job, "b", "c")
        assert numbers(await stream.events(2)) == ["2", "3"]
        await one_listens(site)
        await hands.end(job, Finished())
        assert len(await stream.rest()) == 1


async def test_a_reader_that_does_not_read_holds_up_nobody(site: Site, hands: Hands) -> None:
    job = await hands.begin()
    with asleep(site, job.id):
        async with following(site, job.id) as stream:
            heard: list[Heard] = []
            for number in range(14):
                # more than what is kept, and than what sockets hold
                await hands.tell(job, f"step {number}", message={"text": "x" * 500_000})
                heard += await stream.events(1)
            await hands.end(job, Finished())
            (end,) = await stream.rest()

        assert [one.content["number"] for one in heard] == list(range(1, 15))
        assert end.kind == "end"


async def test_readers_that_vanish_leave_nothing_behind(site: Site, hands: Hands) -> None:
    job = await hands.begin()
    async with following(site, job.id), following(site, job.id) as stream:
        await hands.tell(job, "a")
        await stream.events(1)
        await one_listens(site)
    await until(lambda: site.query(LISTENERS) == [], "nobody listens")


async def test_an_api_that_is_told_to_stop_ends_its_streams_and_readers_go_on_at_another(
    site: Site, hands: Hands
) -> None:
    first = site.start_api()
    job = await hands.begin()
    await hands.tell(job, "a")
    async with following(site, job.id) as stream:
        before = await stream.events(1)
        first.send(signal.SIGTERM)
        assert await stream.rest() == []
    assert await first.ended() == 0
    assert first.complaints() == []

    await hands.tell(job, "b")
    site.start_api()
    async with following(site, job.id, after=before[-1].id) as stream:
        assert numbers(await stream.events(1)) == ["2"]


async def test_a_reader_that_does_not_read_does_not_keep_an_api_from_stopping(
    site: Site, hands: Hands
) -> None:
    api = site.start_api()
    job = await hands.begin()
    with asleep(site, job.id):
        async with following(site, job.id) as stream:
            for number in range(1, 15):
                await hands.tell(job, "fills the sockets", message={"text": "x" * 500_000})
                assert numbers(await stream.events(1)) == [str(number)]
        api.send(signal.SIGTERM)
        # half of what would be waited for an answer
        assert await api.ended(15) == 0
    assert api.complaints() == []
    site.start_api()


async def test_the_same_events_are_listed_for_who_asks_for_json(site: Site, hands: Hands) -> None:
    job = await hands.begin()
    await hands.tell(job, "a", "b", "c")
    path, headers = f"/jobs/{job.id}/events", {"accept": "application/json"}

    first = site.management.get(path, params={"limit": 2}, headers=headers)
    second = site.management.get(path, params={"cursor": first.json()["next_cursor"]}, headers=headers)

    assert first.headers["content-type"] == "application/json"
    assert [one["number"] for one in first.json()["items"]] == [1, 2]
    assert [one["step"] for one in second.json()["items"]] == ["c"]
    assert second.json()["next_cursor"] is None
    missing = site.management.get("/jobs/job_00000000000000000000000000/events", headers=headers)
    assert missing.status_code == 404


@pytest.mark.parametrize("last", ["x", "-1", "1.5", "4", "99999999999999999999", "\u0661"])
async def test_a_last_event_id_that_the_job_never_gave_out_is_refused(
    site: Site, hands: Hands, last: str
) -> None:
    job = await hands.begin()
    await hands.tell(job, "a", "b", "c")
    refused = site.management.get(f"/jobs/{job.id}/events", headers={b"last-event-id": last.encode()})
    assert refused.status_code == 422
    assert refused.json()["errors"][0]["field"] == "Last-Event-ID"
