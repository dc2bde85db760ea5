"""The one connection over which a process hears of the progress of jobs."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import psycopg
import pytest

from hymical.adapters.postgres.pool import ConnectionPool
from hymical.adapters.postgres.progress import PostgresProgressBus
from hymical.adapters.postgres.transactions import PostgresTransactions
from hymical.adapters.system.clock import SystemClock
from hymical.domain.ids import JobId
from tests.builders import ids
from tests.site import until

LISTENERS = (
    "SELECT pid FROM pg_stat_activity"
    " WHERE datname = current_database() AND application_name = 'hymical listen'"
)
LONG = 30.0
NOBODY = "postgresql://nobody@127.0.0.1:9/nothing"


@asynccontextmanager
async def bus_at(database_url: str, *, linger: float = 0) -> AsyncIterator[PostgresProgressBus]:
    pool = ConnectionPool(database_url, application_name="tests", size=1)
    try:
        yield PostgresProgressBus(PostgresTransactions(pool), database_url, SystemClock(), linger=linger)
    finally:
        await pool.close()


class Server:
    def __init__(self, database_url: str) -> None:
        self._database_url = database_url

    def run(self, statement: str, *parameters: object) -> list[tuple[object, ...]]:
        with psycopg.connect(self._database_url, autocommit=True) as connection:
            return connection.execute(statement.encode(), parameters).fetchall()

    def listeners(self) -> list[object]:
        return [pid for (pid,) in self.run(LISTENERS)]

    def notify(self, job_id: JobId) -> None:
        self.run("SELECT pg_notify('hymical_job_events', %s)", job_id)


@pytest.fixture
def server(empty_database_url: str) -> Server:
    return Server(empty_database_url)


async def test_all_who_watch_share_a_connection_that_ends_with_the_last(
    server: Server, empty_database_url: str
) -> None:
    async with bus_at(empty_database_url) as bus:
        for _ in range(2):
            async with AsyncExitStack() as stack:
                for _ in range(300):
                    await stack.enter_async_context(bus.changes(ids.job()))
                assert len(server.listeners()) == 1
            await until(lambda: server.listeners() == [], "nobody listens")


async def test_whoever_comes_soon_after_the_last_has_left_finds_the_connection_open(
    server: Server, empty_database_url: str
) -> None:
    async with bus_at(empty_database_url, linger=LONG) as bus:
        async with bus.changes(ids.job()):
            (first,) = server.listeners()
        async with bus.changes(ids.job()):
            assert server.listeners() == [first]


async def test_a_bell_rings_for_its_own_job_only(server: Server, empty_database_url: str) -> None:
    job, other = ids.job(), ids.job()
    async with bus_at(empty_database_url) as bus, bus.changes(job) as bell, bus.changes(other) as silent:
        await asyncio.gather(bell.wait(0), silent.wait(0))
        server.notify(job)
        assert await bell.wait(LONG)
        assert not await silent.wait(0)


async def test_once_the_block_is_entered_nothing_goes_unheard(
    server: Server, empty_database_url: str
) -> None:
    async with bus_at(empty_database_url) as bus:
        for _ in range(20):
            job = ids.job()
            async with bus.changes(job) as bell:
                await bell.wait(0)
                server.notify(job)
                assert await bell.wait(LONG)


async def test_everybody_is_told_to_look_when_a_lost_connection_is_back(
    server: Server, empty_database_url: str
) -> None:
    async with bus_at(empty_database_url) as bus, AsyncExitStack() as stack:
        bells = [await stack.enter_async_context(bus.changes(ids.job())) for _ in range(10)]
        for bell in bells:
            await bell.wait(0)
        (pid,) = server.listeners()
        server.run("SELECT pg_terminate_backend(%s)", pid)
        assert all(await asyncio.gather(*(bell.wait(LONG) for bell in bells)))
        assert server.listeners() not in ([], [pid])


async def test_a_database_that_is_away_does_not_keep_anybody_from_watching() -> None:
    async with bus_at(NOBODY) as bus, bus.changes(ids.job()) as bell:
        assert not await bell.wait(0)


async def test_who_gives_up_before_it_listens_leaves_nothing_behind(
    server: Server, empty_database_url: str
) -> None:
    async def watch(bus: PostgresProgressBus) -> None:
        async with bus.changes(ids.job()):
            pytest.fail("it was cancelled before")

    async with bus_at(empty_database_url) as bus:
        impatient = asyncio.create_task(watch(bus))
        await asyncio.sleep(0)
        impatient.cancel()
        with pytest.raises(asyncio.CancelledError):
            await impatient
        await until(lambda: server.listeners() == [], "nobody listens")
        async with bus.changes(ids.job()):
            assert len(server.listeners()) == 1
