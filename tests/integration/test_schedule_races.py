"""Races on the ledger of schedules in PostgreSQL, with a transaction held open."""

import asyncio
from collections.abc import AsyncIterator, Collection
from datetime import datetime, timedelta

import pytest

from hymical.domain.ids import JobId
from tests.builders import ids
from tests.clocks import START
from tests.integration.test_queue_races import held_open, waits_for_a_lock
from tests.worlds import World, postgres_world

HOUR = timedelta(hours=1)


@pytest.fixture
async def world(database_url: str) -> AsyncIterator[World]:
    async with postgres_world(database_url) as world:
        await world.ledger.register(["hourly"])
        yield world


async def recorded(world: World, due_at: datetime) -> Collection[JobId]:
    async with world.transactions.begin():
        return await world.ledger.record("hourly", {due_at: ids.job()}, through=due_at)


async def test_a_scheduler_that_took_an_older_tick_for_the_newest_that_was_missed_runs_it_no_more(
    world: World, database_url: str
) -> None:
    newest = START + 2 * HOUR
    async with held_open(
        world, lambda: world.ledger.record("hourly", {newest: ids.job()}, through=newest)
    ) as results:
        assert len(results[0]) == 1
        late = asyncio.create_task(recorded(world, START + HOUR))
        await waits_for_a_lock(database_url)

    assert await late == set()


async def test_nothing_is_run_of_a_schedule_whose_pause_is_being_committed(
    world: World, database_url: str
) -> None:
    async with held_open(world, lambda: world.ledger.pause("hourly")):
        late = asyncio.create_task(recorded(world, START + HOUR))
        await waits_for_a_lock(database_url)

    assert await late == set()
    assert (await world.ledger.standings()).of["hourly"].since == START
