"""Races on the queue in PostgreSQL, with transactions held open, and the plan of its hot query."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
from sqlalchemy import text

from hymical.adapters.fernet.cipher import FernetCipher
from hymical.adapters.postgres.deliveries import PostgresDeliveryQueue
from hymical.adapters.postgres.floors import BEGINNING, FULL_LOOK_EVERY, Floors
from hymical.adapters.postgres.pool import ConnectionPool
from hymical.adapters.postgres.statements import as_json, statement
from hymical.adapters.postgres.transactions import PostgresTransactions
from hymical.application.destinations import SetOperator
from hymical.domain.deliveries import Delivered, DeliveryState, Failed, Later, Reason
from hymical.domain.destinations import Destination
from hymical.domain.errors import NotReplayable, NotResendable
from hymical.domain.ids import OPERATOR
from hymical.domain.outcomes import AttemptOutcome
from hymical.ports.deliveries import ClaimedDelivery, Settled, Verdict
from tests.builders import LEASE, a_secret, an_attempt, ids
from tests.clocks import START
from tests.site import until
from tests.worlds import World, postgres_world


@pytest.fixture
async def world(database_url: str) -> AsyncIterator[World]:
    async with postgres_world(database_url) as world:
        yield world


def succeeded(claimed: ClaimedDelivery) -> Settled:
    return Settled(claimed=claimed, settlement=Delivered(), attempt=an_attempt(claimed.lease.number))


def to_retry(claimed: ClaimedDelivery) -> Settled:
    return Settled(
        claimed=claimed,
        settlement=Later(delay=timedelta(seconds=5)),
        attempt=an_attempt(claimed.lease.number, AttemptOutcome.HTTP_ERROR, 500),
    )


async def claim(world: World, limit: int) -> Sequence[ClaimedDelivery]:
    return (await world.queue.claim(limit=limit, lease=LEASE)).deliveries


async def settle(world: World, settled: Sequence[Settled]) -> Sequence[Verdict]:
    return (await world.queue.settle(settled)).verdicts


async def claim_and_settle(world: World, limit: int) -> Sequence[ClaimedDelivery]:
    claimed = await claim(world, limit)
    await settle(world, [succeeded(one) for one in claimed])
    return claimed


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
    (old,) = await claim(world, 1)
    world.clock.move(LEASE)

    async with held_open(world, lambda: claim(world, 1)) as results:
        ((new,),) = results
        late = asyncio.create_task(settle(world, [to_retry(old)]))
        await waits_for_a_lock(database_url)
    assert await late == [Verdict.OVERTAKEN]

    view = await world.history.get(owed.id)
    assert (view.state, view.attempt_count, view.cycle_attempt_count) == (DeliveryState.PROCESSING, 2, 0)
    (lost,) = await world.history.attempts(owed.id)
    assert (lost.number, lost.outcome, lost.response_status) == (1, AttemptOutcome.HTTP_ERROR, 500)

    assert await settle(world, [succeeded(new)]) == [Verdict.SETTLED]
    assert [attempt.number for attempt in await world.history.attempts(owed.id)] == [1, 2]
    assert (await world.history.get(owed.id)).state is DeliveryState.DELIVERED


async def claim_that_a_crash_forgets(world: World, database_url: str) -> ClaimedDelivery:
    """A claim does not wait for the disk; its holder may have sent the request when PostgreSQL crashes."""
    (forgotten,) = await claim(world, 1)
    async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as connection:
        await connection.execute(
            "UPDATE deliveries SET state = 'pending', ready = TRUE, due_at = %s, attempt_count = attempt_count - 1,"
            " lease_token = NULL, lease_since = NULL WHERE id = %s",
            [world.clock.now(), forgotten.delivery.id],
        )
    return forgotten


async def test_what_the_holder_of_a_forgotten_claim_tells_stopped_every_worker_for_its_number_was_taken(
    world: World, database_url: str
) -> None:
    (owed,) = await world.owes(1)
    forgotten = await claim_that_a_crash_forgets(world, database_url)
    assert await settle(world, [to_retry(forgotten)]) == [Verdict.OVERTAKEN]
    (again,) = await claim(world, 1)
    assert again.lease.number == forgotten.lease.number

    assert await settle(world, [succeeded(again)]) == [Verdict.SETTLED]
    (attempt,) = await world.history.attempts(owed.id)
    assert (attempt.number, attempt.outcome, attempt.late) == (1, AttemptOutcome.SUCCEEDED, False)


async def test_a_lease_that_ends_under_a_number_that_is_taken_stopped_every_claim(
    world: World, database_url: str
) -> None:
    (owed,) = await world.owes(1)
    forgotten = await claim_that_a_crash_forgets(world, database_url)
    await settle(world, [to_retry(forgotten)])
    await claim(world, 1)
    world.clock.move(LEASE)

    (taken_over,) = await claim(world, 1)
    assert await settle(world, [succeeded(taken_over)]) == [Verdict.SETTLED]
    first, second = await world.history.attempts(owed.id)
    assert (first.number, first.outcome) == (1, AttemptOutcome.HTTP_ERROR)
    assert (second.number, second.outcome) == (2, AttemptOutcome.SUCCEEDED)


async def test_forgotten_claims_and_the_one_that_holds_are_settled_in_one_batch(
    world: World, database_url: str
) -> None:
    (owed,) = await world.owes(1)
    forgotten = [await claim_that_a_crash_forgets(world, database_url) for _ in range(2)]
    (holds,) = await claim(world, 1)

    verdicts = await settle(world, [*map(to_retry, forgotten), succeeded(holds)])

    assert verdicts[-1] == Verdict.SETTLED
    (attempt,) = await world.history.attempts(owed.id)
    assert (attempt.number, attempt.outcome) == (1, AttemptOutcome.SUCCEEDED)
    assert (await world.history.get(owed.id)).state is DeliveryState.DELIVERED


async def test_a_claim_passes_over_what_is_being_settled_without_waiting(world: World) -> None:
    first, second = await world.owes(2)
    (held,) = await claim(world, 1)
    assert held.delivery.id == first.id
    world.clock.move(LEASE)

    async with held_open(world, lambda: settle(world, [succeeded(held)])) as results:
        assert results == [[Verdict.SETTLED]]
        claimed = await asyncio.wait_for(claim(world, 10), 5)
        assert [one.delivery.id for one in claimed] == [second.id]

    assert (await world.history.get(first.id)).state is DeliveryState.DELIVERED
    assert [attempt.outcome for attempt in await world.history.attempts(first.id)] == [
        AttemptOutcome.SUCCEEDED
    ]


async def test_a_claim_does_not_wait_for_another_at_the_same_destination_and_says_that_there_is_more(
    world: World,
) -> None:
    busy, other = (
        await world.destination("https://example.com/busy", max_in_flight=6),
        await world.destination("https://example.com/other"),
    )
    await world.owes(10, busy)
    async with held_open(world, lambda: world.queue.claim(limit=5, lease=LEASE)) as (first,):
        await world.owes(1, other)
        second = await asyncio.wait_for(world.queue.claim(limit=10, lease=LEASE), 5)
    third = await world.queue.claim(limit=10, lease=LEASE)

    assert [one.destination.id for one in first.deliveries] == [busy.id] * 5
    assert [one.destination.id for one in second.deliveries] == [other.id]
    assert second.more
    # what the first one took counts, although it was committed after the second had begun
    assert [one.destination.id for one in third.deliveries] == [busy.id]


async def test_two_settles_of_the_same_batch_in_opposite_order_do_not_deadlock(
    world: World, database_url: str
) -> None:
    # as when a settlement is repeated after a connection broke off, while the first one is still running;
    # in a long history each row is looked up in the order of the batch
    await finished_deliveries(database_url, world, 20_000)
    world.clock.move(-timedelta(seconds=1))
    owed = await world.owes(9)
    claimed = await claim(world, 9)
    batch = [succeeded(one) for one in claimed]

    async with await psycopg.AsyncConnection.connect(database_url) as other:
        # whoever takes rows in order stops in the middle
        await other.execute(
            "SELECT 1 FROM deliveries WHERE id = %s FOR UPDATE", [sorted(one.id for one in owed)[4]]
        )
        forwards = asyncio.create_task(settle(world, batch))
        await waits_for_a_lock(database_url)
        backwards = asyncio.create_task(settle(world, batch[::-1]))
        await waits_for_a_lock(database_url, 2)
        await other.rollback()
    answers = [await forwards, await backwards]

    assert sorted(answer.count(Verdict.SETTLED) for answer in answers) == [0, 9]
    for delivery in owed:
        assert (await world.history.get(delivery.id)).state is DeliveryState.DELIVERED
        assert len(await world.history.attempts(delivery.id)) == 1


async def test_two_large_settles_that_overlap_in_opposite_order_do_not_deadlock(
    world: World, database_url: str
) -> None:
    await finished_deliveries(database_url, world, 20_000)
    world.clock.move(-timedelta(seconds=1))
    await world.owes(400, await world.destination(max_in_flight=1_000))
    claimed = await claim(world, 400)
    batch = [succeeded(one) for one in claimed]

    parts = (batch[:300], batch[100:][::-1], batch[::-1], batch[50:350])
    answers = await asyncio.gather(*(settle(world, part) for part in parts))

    # each was settled by exactly one of them
    assert sum(answer.count(Verdict.SETTLED) for answer in answers) == 400


async def test_of_two_replays_at_once_one_wins(world: World, database_url: str) -> None:
    (owed,) = await world.owes(1)
    async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as connection:
        await connection.execute(
            "UPDATE deliveries SET state = 'failed', ready = FALSE, due_at = NULL, completed_at = now(),"
            " failure_reason = 'rejected'"
        )
    async with held_open(world, lambda: world.queue.replay(owed.id)):
        second = asyncio.create_task(world.queue.replay(owed.id))
        await waits_for_a_lock(database_url)
    with pytest.raises(NotReplayable) as refused:
        await second
    assert refused.value.state == "pending"


async def test_a_report_that_waits_for_an_erasure_does_not_bring_back_what_a_receiver_echoed(
    world: World, database_url: str
) -> None:
    (owed,) = await world.owes(1)
    (held,) = await claim(world, 1)
    submission_id = (await world.history.get(owed.id)).submission_id
    assert submission_id is not None

    async with held_open(
        world,
        lambda: world.queue.withdraw_submission(submission_id),
        lambda: world.submissions.erase(submission_id),
    ):
        report = asyncio.create_task(settle(world, [succeeded(held)]))
        await waits_for_a_lock(database_url)
    assert await report == [Verdict.WITHDRAWN]

    (attempt,) = await world.history.attempts(owed.id)
    assert (attempt.outcome, attempt.response_excerpt) == (AttemptOutcome.SUCCEEDED, None)


async def test_a_destination_is_deleted_while_a_failure_at_it_is_settled_without_a_deadlock(
    world: World,
) -> None:
    destination = await world.destination()
    owed = await world.owes(3, destination)
    held = await claim(world, 2)

    # SettleFinished has the deliveries by now, and is about to lock the destination
    async with (
        held_open(world, lambda: settle(world, [to_retry(one) for one in held])),
        asyncio.timeout(5),
        world.transactions.begin(),
    ):
        await world.destinations.delete(destination.id)
        await world.queue.withdraw_from(destination.id, Reason.DESTINATION_DELETED)

    # what could not be had is found by the next that claims
    world.clock.move(timedelta(seconds=5))
    batch = await world.queue.claim(limit=10, lease=LEASE)
    assert (batch.deliveries, batch.stranded) == ([], [(destination.id, Reason.DESTINATION_DELETED)])
    await world.queue.withdraw_from(destination.id, Reason.DESTINATION_DELETED)
    for delivery in owed:
        assert (await world.history.get(delivery.id)).failure_reason is Reason.DESTINATION_DELETED


async def test_workers_that_start_together_make_the_operator_s_destination_once(world: World) -> None:
    set_operator = SetOperator(
        destinations=world.destinations, queue=world.queue, transactions=world.transactions
    )
    secret = a_secret().value

    await asyncio.gather(*(set_operator("https://example.com/alerts", secret) for _ in range(4)))

    operator = await world.destinations.get(OPERATOR)
    assert (operator.url, [one.value for one in operator.secrets]) == ("https://example.com/alerts", [secret])


async def test_who_stands_still_in_a_transaction_loses_its_locks_long_before_a_lease_ends(
    database_url: str,
) -> None:
    pool = ConnectionPool(database_url, application_name="tests", size=1)
    try:
        async with pool.one() as pooled:
            longest = await pooled.connection.scalar(text("SHOW idle_in_transaction_session_timeout"))
    finally:
        await pool.close()
    assert longest == "15s"


# Floors: where a claim begins to look


@pytest.fixture
async def elsewhere(database_url: str, world: World) -> AsyncIterator[World]:
    """Another process, by the same clock."""
    pool = ConnectionPool(database_url, application_name="tests", size=2)
    try:
        queue = PostgresDeliveryQueue(PostgresTransactions(pool), world.clock, FernetCipher([]))
        yield replace(world, queue=queue)
    finally:
        await pool.close()


async def drained(world: World, destination: Destination) -> None:
    """Leaves a floor at the destination, behind what has been delivered."""
    await world.owes(3, destination)
    await settle(world, [succeeded(one) for one in await claim(world, 10)])


async def due_since(database_url: str, delivery_id: str, instant: datetime) -> None:
    async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as connection:
        await connection.execute("UPDATE deliveries SET due_at = %s WHERE id = %s", [instant, delivery_id])


async def test_what_is_stored_behind_a_floor_is_found_by_the_next_full_look(
    world: World, database_url: str
) -> None:
    # by a slow transaction, or by a machine whose clock is late
    destination = await world.destination()
    await drained(world, destination)
    (late,) = await world.owes(1, destination)
    await due_since(database_url, late.id, START - timedelta(hours=1))

    world.clock.move(timedelta(seconds=FULL_LOOK_EVERY / 2))
    assert not await claim(world, 10)
    world.clock.move(timedelta(seconds=FULL_LOOK_EVERY / 2))
    assert [one.delivery.id for one in await claim(world, 10)] == [late.id]


async def test_a_full_look_goes_back_behind_the_floor_for_all_that_waits_there(
    world: World, database_url: str
) -> None:
    destination = await world.destination()
    await drained(world, destination)
    late = await world.owes(30, destination)
    async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as connection:
        await connection.execute(
            "UPDATE deliveries SET due_at = %s WHERE ready", [START - timedelta(hours=1)]
        )

    world.clock.move(timedelta(seconds=FULL_LOOK_EVERY))
    claimed = [one.delivery.id for _ in range(3) for one in await claim(world, 10)]
    assert sorted(claimed) == sorted(one.id for one in late)


async def test_what_is_replayed_resent_or_owed_elsewhere_is_found_at_once(
    world: World, elsewhere: World
) -> None:
    destination = await world.destination()
    await drained(world, destination)
    rejected, sent = await world.owes(2, destination)
    first, second = await claim(world, 10)
    failed = Settled(
        claimed=first,
        settlement=Failed(reason=Reason.REJECTED),
        attempt=an_attempt(first.lease.number, AttemptOutcome.HTTP_ERROR, 400),
    )
    await settle(world, [failed, succeeded(second)])
    again = ids.delivery()

    await elsewhere.queue.replay(rejected.id)
    await elsewhere.queue.resend(sent.id, again)
    assert {one.delivery.id for one in await claim(world, 10)} == {rejected.id, again}


async def test_what_is_handed_back_is_found_at_once_by_all(world: World, elsewhere: World) -> None:
    destination = await world.destination()
    await drained(world, destination)
    await drained(elsewhere, destination)
    (owed,) = await world.owes(1, destination)
    (held,) = await claim(world, 1)
    world.clock.move(timedelta(seconds=1.5))

    for taker in (world, elsewhere):
        await world.queue.release([held.lease])
        (held,) = await claim(taker, 10)
        assert held.delivery.id == owed.id


async def test_a_retry_that_is_found_late_is_claimed_by_whoever_finds_it(
    world: World, elsewhere: World
) -> None:
    destination = await world.destination()
    (retried,) = await world.owes(1, destination)
    (held,) = await claim(elsewhere, 1)
    assert not await claim(world, 1)
    await elsewhere.queue.settle([replace(to_retry(held), settlement=Later(delay=timedelta(seconds=0.2)))])

    # this one leaves a floor behind which the retry came due
    world.clock.move(timedelta(seconds=1.5))
    await drained(world, destination)
    world.clock.move(timedelta(seconds=FULL_LOOK_EVERY - 1.5))
    assert [one.delivery.id for one in await claim(world, 10)] == [retried.id]


async def test_a_retry_is_claimed_in_time_here_and_by_the_next_full_look_elsewhere(
    world: World, elsewhere: World
) -> None:
    destination = await world.destination()
    await drained(world, destination)
    await drained(elsewhere, destination)
    owed = await world.owes(2, destination)
    held = await claim(world, 2)
    soon = timedelta(seconds=1)
    await settle(world, [replace(to_retry(one), settlement=Later(delay=soon)) for one in held])

    world.clock.move(soon)
    (first,) = await claim(world, 1)
    assert first.delivery.id == owed[0].id
    world.clock.move(timedelta(seconds=FULL_LOOK_EVERY))
    assert [one.delivery.id for one in await claim(elsewhere, 10)] == [owed[1].id]


async def test_what_others_have_in_flight_counts_behind_any_floor(world: World, elsewhere: World) -> None:
    destination = await world.destination(max_in_flight=3)
    await world.owes(20, destination)
    ours, theirs = await claim(world, 1), await claim(elsewhere, 1)

    world.clock.move(timedelta(milliseconds=10))
    await settle(world, [succeeded(one) for one in ours])
    for _ in range(3):
        ours = await claim(world, 10)
        assert len(ours) == 2
        assert not await claim(elsewhere, 10)
        world.clock.move(timedelta(milliseconds=10))
        await settle(world, [succeeded(one) for one in ours])
    await settle(elsewhere, [succeeded(one) for one in theirs])
    assert len(await claim(elsewhere, 10)) == 3


async def test_what_others_have_in_flight_counts_after_the_clock_has_gone_back(
    world: World, elsewhere: World
) -> None:
    destination = await world.destination(max_in_flight=3)
    await world.owes(20, destination)
    await settle(world, [succeeded(one) for one in await claim(world, 1)])

    world.clock.move(-timedelta(seconds=1))
    assert len(await claim(elsewhere, 2)) == 2
    assert len(await claim(world, 10)) == 1


_COUNTING = (
    "WITH waited AS MATERIALIZED (SELECT pg_advisory_xact_lock(1))"
    " SELECT (SELECT count(*) FROM deliveries WHERE state = 'processing'), held.number"
    " FROM waited CROSS JOIN LATERAL in_flight(%s, '-infinity', %s) AS held"
)


async def test_a_count_sees_what_was_committed_after_the_claim_s_statement_began(
    world: World, database_url: str
) -> None:
    destination = await world.destination()
    await world.owes(2, destination)
    async with (
        await psycopg.AsyncConnection.connect(database_url) as other,
        await psycopg.AsyncConnection.connect(database_url, autocommit=True) as connection,
    ):
        await other.execute("SELECT pg_advisory_xact_lock(1)")
        counted = asyncio.create_task(connection.execute(_COUNTING.encode(), [destination.id, []]))
        await waits_for_a_lock(database_url)
        await claim(world, 2)
        await other.rollback()
        assert await (await counted).fetchone() == (0, 2)


async def test_what_is_settled_while_a_claim_waits_for_its_lock_makes_room_once(
    world: World, database_url: str
) -> None:
    destination = await world.destination()
    await world.owes(3, destination)
    held = await claim(world, 3)
    answered = [one.lease.token for one in held[:2]]
    async with (
        await psycopg.AsyncConnection.connect(database_url) as other,
        await psycopg.AsyncConnection.connect(database_url, autocommit=True) as connection,
    ):
        await other.execute("SELECT pg_advisory_xact_lock(1)")
        counted = asyncio.create_task(connection.execute(_COUNTING.encode(), [destination.id, answered]))
        await waits_for_a_lock(database_url)
        await settle(world, [succeeded(one) for one in held[:1]])
        await other.rollback()
        # of the three that its statement saw one is settled, one answered, and one in flight
        assert await (await counted).fetchone() == (3, 1)


async def test_floors_spare_a_claim_what_an_old_transaction_keeps_from_being_removed(
    world: World, database_url: str
) -> None:
    destination = await world.destination(max_in_flight=1_000)
    (owed,) = await world.owes(1, destination)
    await copies(database_url, owed.id, 3_000, "pending")
    floors = Floors()
    async with await psycopg.AsyncConnection.connect(database_url) as old:
        await old.set_isolation_level(psycopg.IsolationLevel.REPEATABLE_READ)
        await old.execute("SELECT 1 FROM deliveries LIMIT 1")
        taken = [one for _ in range(4) for one in await claim_and_settle(world, 500)]
        lane = SimpleNamespace(locked=True, oldest=None, now=START + timedelta(days=1))
        last = max(taken, key=lambda one: one.delivery.id)
        row = SimpleNamespace(destination_id=destination.id, id=last.delivery.id, came_due_at=START)
        floors.note({destination.id: lane}, [row], START.timestamp())

        (_, without), (_, with_floor) = (
            await claims_plans(database_url),
            await claims_plans(database_url, floors),
        )
        assert with_floor.touched * 3 < without.touched
        assert len(await claim(world, 10)) == 10


# The plans

# ten rows are looked up, and entered anew, in trees that have grown by a level
_A_LEVEL_HIGHER = 60


async def finished_deliveries(database_url: str, world: World, count: int) -> None:
    """Adds finished deliveries to the history, and lets PostgreSQL know."""
    (owed,) = await world.owes(1)
    await copies(database_url, owed.id, count, "delivered")
    async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as connection:
        await connection.execute(
            "UPDATE deliveries SET ready = FALSE, due_at = 'infinity' WHERE id = %s", [owed.id]
        )


async def copies(database_url: str, delivery_id: str, count: int, state: str) -> None:
    """Adds that many deliveries like one that is there, either `delivered` or still `pending` and ready."""
    open_ = state == "pending"
    async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as connection:
        await connection.execute(
            "INSERT INTO deliveries (id, message_id, destination_id, state, attempt_count, cycle_attempt_count,"
            " lost_in_a_row, due_at, ready, created_at, completed_at)"
            " SELECT 'dlv_' || gen_random_uuid(), message_id, destination_id, %s, 0, 0, 0,"
            " CASE WHEN %s THEN created_at END, %s, created_at, CASE WHEN NOT %s THEN created_at END"
            " FROM deliveries, generate_series(1, %s) WHERE id = %s",
            [state, open_, open_, open_, count, delivery_id],
        )
        await connection.execute("VACUUM ANALYZE")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What PostgreSQL did: every node, and how many pages were touched."""

    nodes: Sequence[Mapping[str, Any]]
    touched: int

    def of(self, relation: str) -> set[str]:
        return {node["Node Type"] for node in self.nodes if node.get("Relation Name") == relation}


async def plan(database_url: str, name: str, **parameters: object) -> Plan:
    """Carries a queue statement out and undoes it."""
    pool = ConnectionPool(database_url, application_name="tests", size=1)
    explain = text(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement(name).text}")
    try:
        async with pool.one() as pooled:
            await pooled.connection.exec_driver_sql("BEGIN")
            found = await pooled.connection.scalar(explain, {"now": START + timedelta(days=1), **parameters})
            await pooled.connection.exec_driver_sql("ROLLBACK")
    finally:
        await pool.close()
    top = found[0]["Plan"]
    return Plan(
        nodes=list(walked(top)), touched=int(top["Shared Hit Blocks"]) + int(top["Shared Read Blocks"])
    )


def walked(node: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield node
    for child in node.get("Plans", ()):
        yield from walked(child)


async def claims_plans(database_url: str, floors: Floors | None = None) -> Sequence[Plan]:
    """The plans of the two statements of one claim."""
    return [
        await plan(database_url, "promote", floor=BEGINNING, ahead=timedelta(seconds=2), limit=1_000),
        await plan(
            database_url,
            "claim",
            stretches=stretches(floors or Floors()),
            limit=10,
            lease=LEASE,
            making_room=[],
        ),
    ]


def stretches(floors: Floors) -> str:
    return as_json(floors.stretches("", 10, START.timestamp()))


async def test_a_claim_reads_no_more_however_long_the_history_is(world: World, database_url: str) -> None:
    destination = await world.destination()
    await world.owes(50, destination)
    await finished_deliveries(database_url, world, 2_000)
    before = await claims_plans(database_url)
    await finished_deliveries(database_url, world, 20_000)
    after = await claims_plans(database_url)

    for earlier, later in zip(before, after, strict=True):
        assert "Seq Scan" not in later.of("deliveries")
        assert later.touched <= earlier.touched + _A_LEVEL_HIGHER


async def test_what_is_in_flight_was_counted_from_the_index_of_what_comes_due_later(
    database_url: str,
) -> None:
    """Two indexes of one condition: by its statistics of a moment PostgreSQL took the one that is not bounded."""
    async with await psycopg.AsyncConnection.connect(database_url) as connection:
        found = await connection.execute(
            "SELECT pg_get_expr(indpred, indrelid), array_agg(cast(indexrelid AS regclass)) FROM pg_index"
            " WHERE indrelid IN (cast('deliveries' AS regclass), cast('jobs' AS regclass)) AND indpred IS NOT NULL"
            " GROUP BY 1 HAVING count(*) > 1"
        )
        assert await found.fetchall() == []


async def test_a_claim_never_reads_the_backlog_of_a_destination_that_takes_nothing(
    world: World, database_url: str
) -> None:
    hanging = await world.destination("https://example.com/hanging", max_in_flight=2)
    healthy = await world.destination("https://example.com/healthy")
    (owed,) = await world.owes(1, hanging)
    await world.owes(20, healthy)
    await copies(database_url, owed.id, 100, "pending")
    assert len([one for one in await claim(world, 8) if one.destination.id == hanging.id]) == 2
    before = await claims_plans(database_url)
    await copies(database_url, owed.id, 20_000, "pending")
    after = await claims_plans(database_url)

    for earlier, later in zip(before, after, strict=True):
        assert "Seq Scan" not in later.of("deliveries")
        assert later.touched <= earlier.touched + _A_LEVEL_HIGHER
    assert {one.destination.id for one in await claim(world, 8)} == {healthy.id}


async def test_a_claim_takes_no_more_steps_than_it_needs_among_many_destinations(
    world: World, database_url: str
) -> None:
    (owed,) = await world.owes(1)
    async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as connection:
        await connection.execute(
            "INSERT INTO destinations (id, form_id, url, state, secrets, headers, max_in_flight, created_at)"
            " SELECT 'dst_' || lpad(n::text, 6, '0'), form_id, url, state, secrets, headers, max_in_flight,"
            " created_at FROM destinations, generate_series(1, 10000) AS n"
        )
        await connection.execute(
            "INSERT INTO deliveries (id, message_id, destination_id, state, attempt_count, cycle_attempt_count,"
            " lost_in_a_row, due_at, ready, created_at)"
            " SELECT 'dlv_' || gen_random_uuid(), message_id, destinations.id, 'pending', 0, 0, 0,"
            " deliveries.created_at, TRUE, deliveries.created_at"
            " FROM destinations, deliveries"
            " WHERE deliveries.id = %s AND destinations.id <> deliveries.destination_id",
            [owed.id],
        )
        await connection.execute("VACUUM ANALYZE")

    _, chosen = await claims_plans(database_url)

    assert chosen.touched < 10 * 60
    batch = await world.queue.claim(limit=10, lease=LEASE)
    assert [one.destination.id for one in sorted(batch.deliveries, key=lambda one: one.destination.id)] == [
        f"dst_{n:06}" for n in range(1, 11)
    ]


async def test_a_submission_that_is_erased_while_it_is_sent_again_is_not_sent_empty(
    world: World, database_url: str
) -> None:
    (owed,) = await world.owes(1)
    (claimed,) = await claim(world, 1)
    failed = Settled(
        claimed=claimed,
        settlement=Failed(reason=Reason.REJECTED),
        attempt=an_attempt(claimed.lease.number, AttemptOutcome.HTTP_ERROR, 400),
    )
    await settle(world, [failed])
    submission_id = claimed.message.submission_id
    assert submission_id is not None
    new_id = ids.delivery()

    async def erase() -> None:
        async with world.transactions.begin():
            await world.queue.withdraw_submission(submission_id)
            await world.submissions.erase(submission_id)

    async with held_open(
        world, partial(world.queue.replay, owed.id), partial(world.queue.resend, owed.id, new_id)
    ):
        erasing = asyncio.create_task(erase())
        await waits_for_a_lock(database_url)
    await erasing

    assert await claim(world, 10) == []
    for delivery_id in (owed.id, new_id):
        assert (await world.history.get(delivery_id)).failure_reason == Reason.SUBMISSION_DELETED


async def test_a_submission_that_is_being_erased_is_not_sent_again(world: World, database_url: str) -> None:
    (owed,) = await world.owes(1)
    (claimed,) = await claim(world, 1)
    await settle(world, [succeeded(claimed)])
    submission_id = claimed.message.submission_id
    assert submission_id is not None

    async with held_open(
        world,
        partial(world.queue.withdraw_submission, submission_id),
        partial(world.submissions.erase, submission_id),
    ):
        resending = asyncio.create_task(world.queue.resend(owed.id, ids.delivery()))
        await waits_for_a_lock(database_url)
    with pytest.raises(NotResendable):
        await resending
    assert await claim(world, 10) == []
