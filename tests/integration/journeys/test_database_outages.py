"""Workers and the API while PostgreSQL goes away and comes back."""

from collections.abc import Iterator

import pytest

from hymical.adapters.embedded.server import EmbeddedServer, embedded_server, temporary_data_folder
from hymical.adapters.postgres.schema import migrate
from tests.receivers import Receiver
from tests.site import Running, Site, until


@pytest.fixture
def own_server() -> Iterator[EmbeddedServer]:
    """A server that a test may restart."""
    with temporary_data_folder("hymical-outage-") as data, embedded_server(data, durable=False) as server:
        migrate(server.url())
        yield server


async def arrives(site: Site, receiver: Receiver) -> None:
    """One more post is accepted, and delivered."""
    before = len(receiver.requests)
    await until(
        lambda: site.public.post("/f/contact", data={"a": "b"}).status_code == 202, "a post is accepted"
    )
    await until(lambda: len(receiver.requests) == before + 1, "it is delivered", 10)
    await until(lambda: set(site.states()) == {"delivered"}, "its delivery is settled", 10)


async def wakes_up_again(site: Site, receiver: Receiver, worker: Running) -> None:
    await until(lambda: worker.says("wake-ups are back"), "the worker listens again")
    # a listener that comes back makes the worker look once; the second post is found by the wake-up alone
    await arrives(site, receiver)
    await arrives(site, receiver)
    assert worker.lives


async def test_a_worker_that_polls_hourly_outlives_a_restart_of_postgresql(
    own_server: EmbeddedServer,
) -> None:
    with Site(own_server.url(), worker_poll_seconds="1h") as site:
        site.start_api()
        worker = site.start_worker()
        async with Receiver() as receiver:
            site.make_form(receiver.url())
            await arrives(site, receiver)

            own_server.restart()

            await wakes_up_again(site, receiver, worker)


async def test_a_worker_that_polls_hourly_outlives_a_crash_of_postgresql(own_server: EmbeddedServer) -> None:
    with Site(own_server.url(), worker_poll_seconds="1h") as site:
        site.start_api()
        worker = site.start_worker()
        async with Receiver() as receiver:
            site.make_form(receiver.url())
            await arrives(site, receiver)

            own_server.restart("immediate")

            await wakes_up_again(site, receiver, worker)


async def test_a_worker_that_polls_hourly_outlives_the_end_of_all_its_sessions(site: Site) -> None:
    site.configure(worker_poll_seconds="1h")
    site.start_api()
    worker = site.start_worker()
    async with Receiver() as receiver:
        site.make_form(receiver.url())
        await arrives(site, receiver)

        ended = site.query(
            "SELECT application_name, pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND application_name IN ('hymical worker', 'hymical listen')"
        )
        assert {name for name, _ in ended} == {"hymical worker", "hymical listen"}

        await wakes_up_again(site, receiver, worker)
