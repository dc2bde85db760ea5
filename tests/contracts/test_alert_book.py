"""What every `AlertBook` promises."""

import asyncio
from datetime import timedelta

from hymical.domain.alerts import PATIENCE, Alert, AlertKind
from hymical.ports.alerts import AlertChanges
from tests.worlds import World

MISSING = Alert(kind=AlertKind.SCHEDULER_MISSING)
UNSERVED = Alert(kind=AlertKind.QUEUE_UNSERVED, subject="exports")
TICK = timedelta(microseconds=1)


async def noted(world: World, *wrong: Alert) -> AlertChanges:
    async with world.transactions.begin():
        return await world.alerts.note(wrong)


async def test_what_is_wrong_is_raised_once_it_has_lasted(world: World) -> None:
    assert not (await noted(world, MISSING)).raised
    world.clock.move(PATIENCE - TICK)
    assert not (await noted(world, MISSING)).raised
    world.clock.move(TICK)

    changes = await noted(world, MISSING)

    assert list(changes.raised) == [MISSING]
    assert changes.now == world.clock.now()
    assert not (await noted(world, MISSING)).raised


async def test_the_end_of_what_was_raised_is_told_once(world: World) -> None:
    await noted(world, MISSING, UNSERVED)
    world.clock.move(PATIENCE)
    assert set((await noted(world, MISSING, UNSERVED)).raised) == {MISSING, UNSERVED}

    assert list((await noted(world, UNSERVED)).ended) == [MISSING]
    assert not (await noted(world, UNSERVED)).ended
    assert list((await noted(world)).ended) == [UNSERVED]
    assert not (await noted(world)).ended


async def test_what_ended_before_it_was_raised_is_never_told_of(world: World) -> None:
    await noted(world, MISSING)
    world.clock.move(PATIENCE / 2)
    changes = await noted(world)
    assert not changes.raised
    assert not changes.ended

    await noted(world, MISSING)
    world.clock.move(PATIENCE / 2)

    # it counts from its new beginning
    assert not (await noted(world, MISSING)).raised


async def test_queues_are_told_apart(world: World) -> None:
    other = Alert(kind=AlertKind.QUEUE_UNSERVED, subject="metrics")
    await noted(world, UNSERVED)
    world.clock.move(PATIENCE)

    assert list((await noted(world, UNSERVED, other)).raised) == [UNSERVED]


async def test_of_processes_that_note_the_same_at_once_one_raises_it(world: World) -> None:
    await noted(world, MISSING)
    world.clock.move(PATIENCE)

    found = await asyncio.gather(*(noted(world, MISSING) for _ in range(5)))

    assert sorted(len(one.raised) for one in found) == [0, 0, 0, 0, 1]


async def test_of_processes_that_note_an_end_at_once_one_tells_of_it(world: World) -> None:
    await noted(world, MISSING)
    world.clock.move(PATIENCE)
    await noted(world, MISSING)

    found = await asyncio.gather(*(noted(world) for _ in range(5)))

    assert sorted(len(one.ended) for one in found) == [0, 0, 0, 0, 1]
