"""The connections of a process: lent, taken back, and lost."""

import asyncio
import os
import signal
import socket
from collections.abc import AsyncIterator, Iterator

import psycopg
import pytest
import uvloop

from hymical.adapters.embedded.server import EmbeddedServer, embedded_server, temporary_data_folder
from hymical.adapters.fernet.cipher import FernetCipher
from hymical.adapters.postgres.deliveries import PostgresDeliveryQueue
from hymical.adapters.postgres.jobs import PostgresJobQueue
from hymical.adapters.postgres.pool import ConnectionPool
from hymical.adapters.postgres.transactions import PostgresTransactions
from hymical.adapters.system.clock import SystemClock
from hymical.domain.errors import StorageUnavailable
from tests.builders import LEASE, a_new_job
from tests.site import until

END_ALL = (
    "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
    " WHERE datname = current_database() AND application_name = 'tests'"
)
ACTIVE = (
    "SELECT count(*) FROM pg_stat_activity"
    " WHERE datname = current_database() AND application_name = 'tests' AND state = 'active'"
)


@pytest.fixture
async def pool(empty_database_url: str) -> AsyncIterator[ConnectionPool]:
    pool = ConnectionPool(empty_database_url, application_name="tests", size=2)
    yield pool
    await pool.close()


def asked(database_url: str, statement: str) -> list[tuple[object, ...]]:
    with psycopg.connect(database_url, autocommit=True) as connection:
        return connection.execute(statement.encode()).fetchall()


async def pid(pool: ConnectionPool, *, seconds: float = 0) -> object:
    async with pool.one() as pooled:
        cursor = await pooled.driver.execute("SELECT pg_backend_pid(), pg_sleep(%s)", [seconds])
        row = await cursor.fetchone()
        assert row is not None
        return row[0]


async def test_one_connection_serves_who_comes_one_after_the_other(pool: ConnectionPool) -> None:
    assert len({await pid(pool) for _ in range(3)}) == 1


async def test_who_comes_together_gets_a_connection_each_up_to_the_size_and_waits_beyond(
    pool: ConnectionPool,
) -> None:
    assert len(set(await asyncio.gather(*(pid(pool, seconds=0.05) for _ in range(6))))) == 2


async def test_sessions_that_ended_while_idle_are_noticed_before_they_are_used(
    pool: ConnectionPool, empty_database_url: str
) -> None:
    before = set(await asyncio.gather(*(pid(pool, seconds=0.05) for _ in range(2))))
    # it returns when they are gone
    asked(empty_database_url, END_ALL)

    assert await pid(pool) not in before


async def test_a_connection_that_breaks_in_use_takes_those_before_it_along(
    pool: ConnectionPool, empty_database_url: str
) -> None:
    before = set(await asyncio.gather(*(pid(pool, seconds=0.05) for _ in range(2))))
    with pytest.raises(psycopg.OperationalError):
        async with pool.one() as pooled:
            asked(empty_database_url, END_ALL)
            await pooled.driver.execute("SELECT 1")

    after = set(await asyncio.gather(*(pid(pool, seconds=0.05) for _ in range(2))))
    assert before & after == set()


async def test_a_statement_whose_caller_goes_away_is_cancelled_and_its_connection_serves_on(
    pool: ConnectionPool, empty_database_url: str
) -> None:
    before = await pid(pool)
    sleeping = asyncio.create_task(pid(pool, seconds=60))
    await until(lambda: asked(empty_database_url, ACTIVE) == [(1,)], "it sleeps")
    sleeping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sleeping

    assert asked(empty_database_url, ACTIVE) == [(0,)]
    assert await pid(pool) == before


async def test_the_number_of_a_socket_that_broke_is_free_for_the_next_one(pool: ConnectionPool) -> None:
    loop = asyncio.get_running_loop()
    async with pool.one() as pooled:
        number = pooled.driver.fileno()
        with socket.socket(fileno=os.dup(number)) as same, pytest.raises(psycopg.OperationalError):
            loop.call_later(0.05, same.shutdown, socket.SHUT_RDWR)
            await pooled.driver.execute("SELECT pg_sleep(5)")

    # it was watched, and nobody was told that it closed
    assert not loop.remove_reader(number)


def test_a_backend_that_died_with_a_statement_unread_left_uvloop_waiting_for_ever() -> None:
    async def run_and_kill(server: EmbeddedServer) -> None:
        pool = ConnectionPool(server.url(), application_name="tests", size=1)
        for _ in range(20):
            async with asyncio.timeout(20), pool.one() as pooled:
                await pooled.driver.run(b"one", b"SELECT 1 AS one", ())
                backend = pooled.driver.info.backend_pid
                os.kill(backend, signal.SIGSTOP)
                statement = asyncio.create_task(pooled.driver.run(b"one", b"", ()))
                # the statement lies in the socket of a process that stands still
                await asyncio.sleep(0.01)
                asked(server.url(), f"SELECT pg_terminate_backend({backend})")
                os.kill(backend, signal.SIGCONT)
                with pytest.raises(psycopg.OperationalError):
                    await statement
        await pool.close()

    with temporary_data_folder("hymical-tests-") as data, embedded_server(data, durable=False) as server:
        uvloop.run(run_and_kill(server))


async def test_a_connection_with_a_transaction_left_open_is_not_lent_again(pool: ConnectionPool) -> None:
    async with pool.one() as pooled:
        await pooled.driver.execute("BEGIN")
        left = pooled.driver.info.backend_pid

    assert await pid(pool) != left


async def test_who_waits_too_long_for_a_connection_is_told(
    pool: ConnectionPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hymical.adapters.postgres.pool._PATIENCE_SECONDS", 0.05)
    async with pool.one(), pool.one():
        with pytest.raises(StorageUnavailable) as refused:
            await pid(pool)
    assert refused.value.said == "every connection is in use"

    assert await pid(pool)


async def test_an_answer_larger_than_a_socket_holds_arrives_whole(pool: ConnectionPool) -> None:
    async with pool.one() as pooled:
        cursor = await pooled.driver.execute("SELECT %s::text || repeat('x', 5000000)", ["y" * 5_000_000])
        row = await cursor.fetchone()
    assert row == ("y" * 5_000_000 + "x" * 5_000_000,)


async def test_a_task_that_outlives_the_transaction_it_was_begun_in_takes_no_part_in_another_one(
    pool: ConnectionPool,
) -> None:
    transactions = PostgresTransactions(pool)
    next_one = asyncio.Event()

    async def session() -> object:
        async with transactions.connection() as connection:
            return (await connection.exec_driver_sql("SELECT pg_backend_pid()")).scalar_one()

    async def later() -> object:
        await next_one.wait()
        return await session()

    async with transactions.begin():
        outlives = asyncio.create_task(later())
    async with transactions.begin():
        next_one.set()
        assert await outlives != await session()


@pytest.fixture
def own_server() -> Iterator[EmbeddedServer]:
    """A server that a test may restart."""
    with temporary_data_folder("hymical-pool-") as data, embedded_server(data, durable=False) as server:
        yield server


async def test_after_a_restart_of_postgresql_the_first_statement_already_works(
    own_server: EmbeddedServer,
) -> None:
    pool = ConnectionPool(own_server.url(), application_name="tests", size=2)
    try:
        transactions = PostgresTransactions(pool)
        await transactions.run("tell_time", {"now": None})
        await asyncio.to_thread(own_server.restart)
        assert await transactions.run("tell_time", {"now": None})
    finally:
        await pool.close()


async def test_what_comes_after_a_claim_that_does_not_wait_for_the_disk_waits_for_it(
    database_url: str,
) -> None:
    pool = ConnectionPool(database_url, application_name="tests", size=1)
    transactions = PostgresTransactions(pool)
    jobs = PostgresJobQueue(transactions, SystemClock())
    deliveries = PostgresDeliveryQueue(transactions, SystemClock(), FernetCipher([]))
    try:
        await jobs.enqueue([a_new_job()])
        assert (await jobs.claim(["default"], limit=1, lease=LEASE)).jobs
        await deliveries.claim(limit=1, lease=LEASE)
        async with pool.one() as pooled:
            shown = await (await pooled.driver.execute("SHOW synchronous_commit")).fetchone()
    finally:
        await pool.close()
    assert shown == ("on",)


async def test_a_parameter_may_be_larger_than_when_its_statement_was_prepared(pool: ConnectionPool) -> None:
    async with pool.one() as pooled:
        for number in (1, 40_000, 3_000_000_000):
            (row,) = await pooled.driver.run(b"echo", b"SELECT cast($1 AS bigint) AS said", [number])
            assert row.said == number


async def test_a_rollback_forgets_no_prepared_statement(pool: ConnectionPool) -> None:
    async with pool.one() as pooled:
        await pooled.driver.run(b"one", b"SELECT 1 AS one", ())
        for number in range(10):
            # often enough for the driver to prepare it, if it did
            await pooled.driver.execute("SELECT %s", [number])
        with pytest.raises(ZeroDivisionError):
            async with pooled.driver.transaction():
                raise ZeroDivisionError
        (row,) = await pooled.driver.run(b"one", b"SELECT 1 AS one", ())
        assert row.one == 1


async def test_a_statement_that_cannot_be_prepared_costs_its_connection_and_nothing_more(
    pool: ConnectionPool,
) -> None:
    before = await pid(pool)
    with pytest.raises(psycopg.errors.UndefinedTable):
        async with pool.one() as pooled:
            await pooled.driver.run(b"wrong", b"SELECT 1 FROM nowhere", ())
    assert await pid(pool) != before


async def test_a_statement_that_is_cancelled_while_it_is_prepared_is_prepared_anew(
    pool: ConnectionPool,
) -> None:
    for steps in range(20):
        name = f"said_{steps}".encode()
        async with pool.one() as pooled:
            running = asyncio.create_task(pooled.driver.run(name, b"SELECT 1 AS one", ()))
            for _ in range(steps):
                await asyncio.sleep(0)
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
        async with pool.one() as pooled:
            (row,) = await pooled.driver.run(name, b"SELECT 1 AS one", ())
            assert row.one == 1
