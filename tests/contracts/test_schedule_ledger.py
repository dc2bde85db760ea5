"""What every `ScheduleLedger` promises."""

import asyncio
from collections.abc import Collection, Mapping
from datetime import datetime, timedelta

import pytest

from hymical.domain.ids import JobId
from hymical.ports import schedules as port
from hymical.ports.schedules import Standing
from tests.builders import ids
from tests.clocks import START
from tests.worlds import World

NAME = "nightly"
HOUR = timedelta(hours=1)


def hours(*numbers: int) -> dict[datetime, JobId]:
    """Ticks at these hours after the start, each with a job."""
    return {START + number * HOUR: ids.job() for number in numbers}


async def standing(world: World, name: str = NAME) -> Standing:
    return (await world.ledger.standings()).of[name]


async def recorded(world: World, ticks: Mapping[datetime, JobId], name: str = NAME) -> Collection[JobId]:
    async with world.transactions.begin():
        return await world.ledger.record(name, ticks, through=max(ticks))


async def test_an_empty_ledger_still_tells_the_time(world: World) -> None:
    standings = await world.ledger.standings()

    assert standings.now == START
    assert standings.of == {}


async def test_a_schedule_begins_when_it_is_registered_and_not_again(world: World) -> None:
    await world.ledger.register([NAME, "hourly"])
    world.clock.move(HOUR)
    await world.ledger.register([NAME])

    assert await standing(world) == Standing(since=START, paused_at=None, last=None)
    assert (await world.ledger.standings()).of.keys() == {NAME, "hourly"}


async def test_a_tick_that_is_recorded_moves_the_watermark_and_is_the_last(world: World) -> None:
    await world.ledger.register([NAME])
    world.clock.move(timedelta(minutes=61))
    ticks = hours(1)

    assert set(await recorded(world, ticks)) == set(ticks.values())

    after = await standing(world)
    assert after.since == START + HOUR
    assert after.last is not None
    assert (after.last.due_at, after.last.job_id) == (START + HOUR, ticks[START + HOUR])
    assert after.last.enqueued_at == START + timedelta(minutes=61)


async def test_the_same_tick_is_recorded_once(world: World) -> None:
    await world.ledger.register([NAME])
    await recorded(world, hours(1))

    assert await recorded(world, hours(1)) == set()


async def test_ticks_of_different_schedules_are_nothing_to_each_other(world: World) -> None:
    await world.ledger.register([NAME, "hourly"])
    await recorded(world, hours(1))

    assert len(await recorded(world, hours(1), "hourly")) == 1


async def test_of_several_ticks_only_those_are_new_that_no_watermark_covers(world: World) -> None:
    await world.ledger.register([NAME])
    await recorded(world, hours(2))
    ticks = hours(1, 2, 3)

    assert set(await recorded(world, ticks)) == {ticks[START + 3 * HOUR]}


async def test_skipped_ticks_move_the_watermark_without_an_entry(world: World) -> None:
    await world.ledger.register([NAME])

    async with world.transactions.begin():
        assert await world.ledger.record(NAME, {}, through=START + HOUR) == set()

    assert await standing(world) == Standing(since=START + HOUR, paused_at=None, last=None)


async def test_a_watermark_never_moves_back_by_a_record(world: World) -> None:
    await world.ledger.register([NAME])
    await recorded(world, hours(3))
    await recorded(world, hours(1))

    assert (await standing(world)).since == START + 3 * HOUR


async def test_nothing_is_recorded_of_a_schedule_that_nobody_registered(world: World) -> None:
    assert await recorded(world, hours(1)) == set()
    assert (await world.ledger.standings()).of == {}


async def test_a_transaction_that_breaks_off_has_recorded_nothing(world: World) -> None:
    await world.ledger.register([NAME])

    with pytest.raises(ZeroDivisionError):
        async with world.transactions.begin():
            assert await world.ledger.record(NAME, hours(1), through=START + HOUR)
            raise ZeroDivisionError

    assert await standing(world) == Standing(since=START, paused_at=None, last=None)
    assert len(await recorded(world, hours(1))) == 1


async def test_of_schedulers_that_record_a_tick_at_once_one_does(world: World) -> None:
    await world.ledger.register([NAME])

    results = await asyncio.gather(*(recorded(world, hours(1, 2)) for _ in range(5)))

    assert sorted(len(one) for one in results) == [0, 0, 0, 0, 2]


async def test_a_watermark_ahead_of_the_clock_goes_back_to_now_and_ticks_are_still_recorded_once(
    world: World,
) -> None:
    await world.ledger.register([NAME])
    await recorded(world, hours(5))
    world.clock.move(HOUR)

    await world.ledger.register([NAME])

    assert (await standing(world)).since == START + HOUR
    ticks = hours(4, 5, 6)
    assert set(await recorded(world, ticks)) == {ticks[START + 4 * HOUR], ticks[START + 6 * HOUR]}


async def test_nothing_is_recorded_while_it_is_paused(world: World) -> None:
    await world.ledger.register([NAME])
    world.clock.move(HOUR)
    await world.ledger.pause(NAME)
    world.clock.move(HOUR)
    await world.ledger.pause(NAME)

    assert await recorded(world, hours(2)) == set()
    assert await standing(world) == Standing(since=START, paused_at=START + HOUR, last=None)


async def test_it_goes_on_from_the_moment_when_it_is_resumed(world: World) -> None:
    await world.ledger.register([NAME])
    await world.ledger.pause(NAME)
    world.clock.move(3 * HOUR)

    await world.ledger.resume(NAME)

    assert await standing(world) == Standing(since=START + 3 * HOUR, paused_at=None, last=None)
    assert await recorded(world, hours(2)) == set()
    assert len(await recorded(world, hours(4))) == 1


async def test_resuming_what_is_not_paused_changes_nothing(world: World) -> None:
    await world.ledger.register([NAME])
    world.clock.move(HOUR)

    await world.ledger.resume(NAME)

    assert (await standing(world)).since == START


async def test_a_schedule_can_be_paused_before_a_scheduler_has_seen_it(world: World) -> None:
    await world.ledger.pause(NAME)

    assert await standing(world) == Standing(since=START, paused_at=START, last=None)


async def test_a_run_by_hand_is_the_last_and_leaves_the_watermark(world: World) -> None:
    await world.ledger.register([NAME])
    world.clock.move(timedelta(minutes=5))
    job_id = ids.job()

    await world.ledger.record_by_hand(NAME, job_id)

    after = await standing(world)
    assert after.since == START
    assert after.last is not None
    assert (after.last.due_at, after.last.job_id) == (START + timedelta(minutes=5), job_id)


async def test_a_schedule_that_nobody_registered_can_be_run_by_hand(world: World) -> None:
    await world.ledger.record_by_hand(NAME, ids.job())

    assert (await standing(world)).since == START


async def test_old_entries_are_forgotten_and_their_ticks_stay_covered(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("postgres", "memory"):
        monkeypatch.setattr(f"hymical.adapters.{module}.schedules.KEPT_TICKS", 3)
    assert port.KEPT_TICKS > 3
    await world.ledger.register([NAME])
    for number in range(1, 10):
        assert len(await recorded(world, hours(number))) == 1

    assert await recorded(world, hours(*range(1, 10))) == set()
    after = await standing(world)
    assert after.last is not None
    assert after.last.due_at == START + 9 * HOUR
