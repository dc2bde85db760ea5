"""Limits that many transactions and processes share in PostgreSQL, and the rows that are left of them."""

import asyncio
import random
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from contextvars import Context
from datetime import timedelta

import psycopg
import pytest

from hymical.adapters.postgres.schema import migrate
from hymical.domain.limits import RateLimit
from hymical.ports.limits import Asked, Bucket, Decision
from tests.database import Databases
from tests.site import until
from tests.worlds import World, postgres_world

HUNDRED = RateLimit(requests=100, window=timedelta(hours=100))

PROCESS = """
import asyncio, sys
from datetime import timedelta
from hymical.adapters.postgres.limits import PostgresRateLimiter
from hymical.adapters.postgres.pool import ConnectionPool
from hymical.adapters.postgres.transactions import PostgresTransactions
from hymical.adapters.system.clock import SystemClock
from hymical.domain.limits import RateLimit
from hymical.ports.limits import Asked, Bucket

async def main():
    pool = ConnectionPool(sys.argv[1], application_name="tests", size=4)
    limiter = PostgresRateLimiter(PostgresTransactions(pool), SystemClock())
    limit = RateLimit(requests=100, window=timedelta(hours=100))
    asked = Asked(source=Bucket(key=b"s" * 32, limit=limit), form=Bucket(key=b"form:contact", limit=limit))
    batches = await asyncio.gather(*(limiter.spend([asked] * 3) for _ in range(20)))
    print(sum(decision.refusal is None for batch in batches for decision in batch))
    await pool.close()

asyncio.run(main())
"""


@pytest.fixture
async def world(database_url: str) -> AsyncIterator[World]:
    async with postgres_world(database_url) as world:
        yield world


def asked(source: bytes, form: bytes | None = None, limit: RateLimit = HUNDRED) -> Asked:
    return Asked(
        source=Bucket(key=source, limit=limit), form=None if form is None else Bucket(key=form, limit=limit)
    )


async def spend(world: World, batch: Sequence[Asked]) -> Sequence[Decision]:
    return await world.limiter.spend(batch)


def somebody_waits(database_url: str) -> bool:
    with psycopg.connect(database_url) as connection:
        found = connection.execute(
            "SELECT FROM pg_stat_activity"
            " WHERE datname = current_database() AND cardinality(pg_blocking_pids(pid)) > 0"
        )
        return found.fetchone() is not None


def rows(database_url: str) -> set[bytes]:
    with psycopg.connect(database_url) as connection:
        return {key for (key,) in connection.execute("SELECT key FROM rate_limits")}


async def test_processes_share_a_bucket_exactly(database_url: str) -> None:
    processes = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-c", PROCESS, database_url, stdout=asyncio.subprocess.PIPE
        )
        for _ in range(4)
    ]

    printed = [(await process.communicate())[0] for process in processes]

    assert sum(int(number) for number in printed) == 100


async def test_transactions_at_one_time_share_buckets_exactly_and_never_wait_in_a_circle(
    database_url: str,
) -> None:
    sources = [bytes([number]) * 32 for number in range(12)]
    forms = [f"form:{number}".encode() for number in range(3)]
    granted: list[bytes] = []

    async def some_posts(world: World, dice: random.Random) -> None:
        for _ in range(10):
            batch = [asked(dice.choice(sources), dice.choice(forms)) for _ in range(20)]
            async with world.transactions.begin():
                decisions = await world.limiter.spend(batch)
            granted.extend(
                one.form.key
                for one, decision in zip(batch, decisions, strict=True)
                if decision.refusal is None and one.form is not None
            )

    async with AsyncExitStack() as stack:
        worlds = [await stack.enter_async_context(postgres_world(database_url)) for _ in range(3)]
        async with asyncio.timeout(60):
            await asyncio.gather(
                *(
                    some_posts(worlds[number % 3], random.Random(number))  # noqa: S311  # a test that repeats
                    for number in range(12)
                )
            )

    assert {form: granted.count(form) for form in forms} == dict.fromkeys(forms, 100)


async def test_who_waited_for_a_bucket_sees_what_was_left_of_it(world: World, database_url: str) -> None:
    async with world.transactions.begin():
        await world.limiter.spend([asked(b"s")] * 99)
        # in a context of its own, for a task that is made here would share the open transaction
        asking = asyncio.create_task(spend(world, [asked(b"s")] * 2), context=Context())
        await until(lambda: somebody_waits(database_url), "somebody waits for a bucket")

    assert [decision.refusal is None for decision in await asking] == [True, False]


async def test_a_new_bucket_makes_the_long_full_ones_behind_it_forgotten(
    world: World, database_url: str
) -> None:
    quick = RateLimit(requests=1, window=timedelta(seconds=1))
    await world.limiter.spend([asked(key, limit=quick) for key in (b"a", b"c", b"d", b"e")])
    world.clock.move(timedelta(minutes=5))
    await world.limiter.spend([asked(b"d", limit=quick)])
    world.clock.move(timedelta(minutes=6))

    await world.limiter.spend([asked(b"a", limit=quick)])
    assert rows(database_url) == {b"a", b"c", b"d", b"e"}
    await world.limiter.spend([asked(b"b", limit=quick)])
    assert rows(database_url) == {b"a", b"b", b"d", b"e"}
    world.clock.move(timedelta(minutes=11))
    await world.limiter.spend([asked(b"b1", limit=quick), asked(b"d", limit=quick)])
    assert rows(database_url) == {b"a", b"b", b"b1", b"d"}


async def test_the_table_stays_as_large_as_what_is_in_use(world: World, database_url: str) -> None:
    quick, dice = RateLimit(requests=1, window=timedelta(seconds=1)), random.Random(1)  # noqa: S311
    for _ in range(60):
        await world.limiter.spend([asked(dice.randbytes(32), limit=quick) for _ in range(20)])
        world.clock.move(timedelta(minutes=1))

    # those of the last eleven minutes are in use, and as many again may wait to be looked at
    assert len(rows(database_url)) < 3 * 11 * 20


async def test_a_bucket_that_somebody_holds_is_not_waited_for_to_be_forgotten(
    world: World, database_url: str
) -> None:
    await world.limiter.spend([asked(b"b", limit=RateLimit(requests=1, window=timedelta(seconds=1)))])
    world.clock.move(timedelta(days=1))
    with psycopg.connect(database_url) as holder:
        holder.execute("SELECT FROM rate_limits FOR UPDATE")

        async with asyncio.timeout(10):
            await world.limiter.spend([asked(b"a")])

    assert rows(database_url) == {b"a", b"b"}


async def test_the_key_of_sources_is_the_same_for_all_and_another_in_each_database(
    database_url: str, empty_database_url: str, databases: Databases
) -> None:
    with databases.empty() as third_url:
        migrate(empty_database_url)
        migrate(third_url)
        keys = []
        for url in (database_url, database_url, empty_database_url, third_url):
            async with postgres_world(url) as world:
                keys.append(await world.source_key.read())

    assert keys[0] == keys[1]
    assert len(set(keys)) == 3
    assert {len(key) for key in keys} == {32}
