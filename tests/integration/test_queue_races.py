"""Races on the queue in PostgreSQL, with transactions held open, and the plan of its hot query."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from sqlalchemy import text

from hymical.adapters.postgres.statements import statement
from hymical.adapters.postgres.transactions import create_engine
from hymical.domain.deliveries import AttemptOutcome, Delivered, DeliveryState, Later
from hymical.domain.errors import NotReplayable
from hymical.ports.deliveries import ClaimedDelivery, Settled
from tests.builders import LEASE, an_attempt
from tests.clocks import START
from tests.site import until
from tests.worlds import World, postgres_world


@pytest.fixture
async def world(database_url: str) -> AsyncIterator[World]:
    async with postgres_world(database_url) as world:
        yield world


def succeeded(claimed: ClaimedDelivery) -> Settled:
    return Settled(lease=claimed.lease, settlement=Delivered(), attempt=an_attempt(claimed.lease.number))


def to_retry(claimed: ClaimedDelivery) -> Settled:
    return Settled(
        lease=claimed.lease,
        settlement=Later(delay=timedelta(seconds=5)),
        attempt=an_attempt(claimed.lease.number, AttemptOutcome.HTTP_ERROR, 500),
    )


class Pause:
    """A point in a transaction at which a test holds it."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.over = asyncio.Event()

    async def __call__(self) -> None:
        self.reached.set()
        await self.over.wait()


@asynccontextmanager
async def held_open(world: World, *steps: Any) -> AsyncIterator[list[Any]]:
    """Takes steps in a transaction of its own, which commits at the end of the block."""
    results: list[Any] = []
    pause = Pause()

    async def transaction() -> None:
        async with world.transactions.begin():
            results.extend([await step() for step in steps])
            await pause()

    running = asyncio.create_task(transaction())
    reached = asyncio.create_task(pause.reached.wait())
    await asyncio.wait({running, reached}, return_when=asyncio.FIRST_COMPLETED)
    if not reached.done():
        reached.cancel()
        await running
    try:
        yield results
    finally:
        pause.over.set()
        await running


async def waits_for_a_lock(database_url: str, count: int = 1) -> None:
    """Returns once so many sessions of this database wait for another's lock."""
    waiting = (
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE datname = current_database() AND cardinality(pg_blocking_pids(pid)) > 0"
    )
    async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as connection:

        async def so_many_wait() -> bool:
            return await (await connection.execute(waiting.encode())).fetchone() == (count,)

        await until(so_many_wait, f"{count} wait for a lock", 10)


async def test_a_settle_that_waits_for_a_reclaim_ends_as_overtaken_and_its_attempt_is_completed(
    world: World, database_url: str
) -> None:
    (owed,) = await world.owes(1)
    (old,) = await world.queue.claim(limit=1, lease=LEASE)
    world.clock.move(LEASE)

    async with held_open(world, lambda: world.queue.claim(limit=1, lease=LEASE)) as results:
        ((new,),) = results
        late = asyncio.create_task(world.queue.settle([to_retry(old)]))
        await waits_for_a_lock(database_url)
    assert await late == {owed.id}

    view = await world.history.get(owed.id)
    assert (view.state, view.attempt_count, view.cycle_attempt_count) == (DeliveryState.PROCESSING, 2, 0)
    (lost,) = await world.history.attempts(owed.id)
    assert (lost.number, lost.outcome, lost.response_status) == (1, AttemptOutcome.HTTP_ERROR, 500)

    assert await world.queue.settle([succeeded(new)]) == set()
    assert [attempt.number for attempt in await world.history.attempts(owed.id)] == [1, 2]
    assert (await world.history.get(owed.id)).state is DeliveryState.DELIVERED


async def test_a_claim_passes_over_what_is_being_settled_without_waiting(world: World) -> None:
    first, second = await world.owes(2)
    (held,) = await world.queue.claim(limit=1, lease=LEASE)
    assert held.delivery.id == first.id
    world.clock.move(LEASE)

    async with held_open(world, lambda: world.queue.settle([succeeded(held)])) as results:
        assert results == [set()]
        claimed = await asyncio.wait_for(world.queue.claim(limit=10, lease=LEASE), 5)
        assert [one.delivery.id for one in claimed] == [second.id]

    assert (await world.history.get(first.id)).state is DeliveryState.DELIVERED
    assert [attempt.outcome for attempt in await world.history.attempts(first.id)] == [
        AttemptOutcome.SUCCEEDED
    ]


async def test_two_claims_at_once_share_what_is_due_without_waiting(world: World) -> None:
    owed = {delivery.id for delivery in await world.owes(10)}
    async with held_open(world, lambda: world.queue.claim(limit=5, lease=LEASE)) as (first,):
        second = await asyncio.wait_for(world.queue.claim(limit=10, lease=LEASE), 5)
    one, other = ({claimed.delivery.id for claimed in claims} for claims in (first, second))
    assert (len(one), len(other)) == (5, 5)
    assert one | other == owed


async def test_two_settles_of_the_same_batch_in_opposite_order_do_not_deadlock(
    world: World, database_url: str
) -> None:
    # as when a settlement is repeated after a connection broke off, while the first one is still running;
    # in a long history each row is looked up in the order of the batch
    await finished_deliveries(database_url, world, 20_000)
    world.clock.move(-timedelta(seconds=1))
    owed = await world.owes(9)
    claimed = await world.queue.claim(limit=9, lease=LEASE)
    batch = [succeeded(one) for one in claimed]

    async with await psycopg.AsyncConnection.connect(database_url) as other:
        # whoever takes rows in order stops in the middle
        await other.execute(
            "SELECT 1 FROM deliveries WHERE id = %s FOR UPDATE", [sorted(one.id for one in owed)[4]]
        )
        forwards = asyncio.create_task(world.queue.settle(batch))
        await waits_for_a_lock(database_url)
        backwards = asyncio.create_task(world.queue.settle(batch[::-1]))
        await waits_for_a_lock(database_url, 2)
        await other.rollback()
    answers = [await forwards, await backwards]

    assert sorted(len(overtaken) for overtaken in answers) == [0, 9]
    for delivery in owed:
        assert (await world.history.get(delivery.id)).state is DeliveryState.DELIVERED
        assert len(await world.history.attempts(delivery.id)) == 1


async def test_two_large_settles_that_overlap_in_opposite_order_do_not_deadlock(
    world: World, database_url: str
) -> None:
    await finished_deliveries(database_url, world, 20_000)
    world.clock.move(-timedelta(seconds=1))
    await world.owes(400)
    claimed = await world.queue.claim(limit=400, lease=LEASE)
    batch = [succeeded(one) for one in claimed]

    parts = (batch[:300], batch[100:][::-1], batch[::-1], batch[50:350])
    answers = await asyncio.gather(*(world.queue.settle(part) for part in parts))

    # each was settled by exactly one of them
    assert sum(len(part) - len(overtaken) for part, overtaken in zip(parts, answers, strict=True)) == 400


async def test_of_two_replays_at_once_one_wins(world: World, database_url: str) -> None:
    (owed,) = await world.owes(1)
    async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as connection:
        await connection.execute(
            "UPDATE deliveries SET state = 'failed', due_at = NULL, completed_at = now(), failure_reason = 'rejected'"
        )
    async with held_open(world, lambda: world.queue.replay(owed.id)):
        second = asyncio.create_task(world.queue.replay(owed.id))
        await waits_for_a_lock(database_url)
    with pytest.raises(NotReplayable) as refused:
        await second
    assert refused.value.state == "pending"


# The plan


async def claims_plan(database_url: str, *, limit: int) -> dict[str, Any]:
    """What PostgreSQL does for a claim, which is then undone."""
    engine = create_engine(database_url, application_name="tests", pool_size=1)
    explain = text(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement('claim').text}")
    try:
        async with engine.connect() as connection:
            found = await connection.scalar(
                explain, {"now": START + timedelta(days=1), "limit": limit, "lease": LEASE}
            )
            await connection.rollback()
    finally:
        await engine.dispose()
    plan: dict[str, Any] = found[0]["Plan"]
    return plan


def nodes(plan: dict[str, Any]) -> list[dict[str, Any]]:
    return [plan, *(node for child in plan.get("Plans", ()) for node in nodes(child))]


async def finished_deliveries(database_url: str, world: World, count: int) -> None:
    """Adds finished deliveries to the history, and lets PostgreSQL know."""
    (owed,) = await world.owes(1)
    async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as connection:
        await connection.execute(
            "INSERT INTO deliveries (id, message_id, destination_id, state, attempt_count, cycle_attempt_count,"
            " lost_in_a_row, created_at, completed_at)"
            " SELECT 'dlv_' || gen_random_uuid(), message_id, destination_id, 'delivered', 1, 1, 0, now(), now()"
            " FROM deliveries, generate_series(1, %s) WHERE id = %s",
            [count, owed.id],
        )
        await connection.execute("VACUUM ANALYZE deliveries, messages, destinations")


async def test_a_claim_reads_its_index_in_order_and_no_more_however_long_the_history_is(
    world: World, database_url: str
) -> None:
    await world.owes(200)
    await finished_deliveries(database_url, world, 2_000)
    before = await claims_plan(database_url, limit=10)
    await finished_deliveries(database_url, world, 20_000)
    after = await claims_plan(database_url, limit=10)

    for plan in (before, after):
        due = next(node for node in nodes(plan) if node.get("Subplan Name") == "CTE due")
        read = [node["Node Type"] for node in nodes(due)]
        assert "Sort" not in read
        assert "Incremental Sort" not in read
        assert [node["Index Name"] for node in nodes(due) if node["Node Type"].startswith("Index")] == [
            "deliveries_due"
        ]
        assert "Seq Scan" not in [
            node["Node Type"] for node in nodes(plan) if node.get("Relation Name") == "deliveries"
        ]
    finding = [
        next(node for node in nodes(plan) if node.get("Subplan Name") == "CTE due")
        for plan in (before, after)
    ]
    # one page more or less of an index is not growth
    assert touched(finding[1]) <= touched(finding[0]) + 2
    # what it changes is found through trees, which are a level higher by now
    assert touched(after) <= touched(before) + 10 * 10


def touched(plan: dict[str, Any]) -> int:
    return int(plan["Shared Hit Blocks"]) + int(plan["Shared Read Blocks"])
