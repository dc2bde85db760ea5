"""What every `WorkerRegistry` promises."""

from dataclasses import replace
from datetime import timedelta

from hymical.ports.workers import LIVE_WITHIN, WorkerPresence
from tests.builders import ids
from tests.clocks import START
from tests.worlds import World

TICK = timedelta(microseconds=1)
HOUR = timedelta(hours=1)


def a_worker() -> WorkerPresence:
    return WorkerPresence(id=ids.worker(), host="kiel", pid=7, version="1.2.3", in_flight=0)


async def live(world: World) -> list[bool]:
    return [view.live for view in await world.workers.all()]


async def test_nobody_is_at_work_before_somebody_reports(world: World) -> None:
    assert list(await world.workers.all()) == []


async def test_a_report_says_who_it_is_and_since_when(world: World) -> None:
    worker = a_worker()

    await world.workers.report(replace(worker, in_flight=3))

    (view,) = await world.workers.all()
    assert (view.id, view.host, view.pid, view.version, view.in_flight) == (worker.id, "kiel", 7, "1.2.3", 3)
    assert (view.started_at, view.last_seen_at, view.live) == (START, START, True)


async def test_a_worker_says_which_queues_it_drains(world: World) -> None:
    await world.workers.report(replace(a_worker(), queues=("exports", "default")))
    world.clock.move(TICK)
    await world.workers.report(a_worker())

    assert [tuple(view.queues) for view in await world.workers.all()] == [(), ("exports", "default")]


async def test_a_later_report_renews_it_and_keeps_its_start(world: World) -> None:
    worker = a_worker()
    await world.workers.report(worker)
    world.clock.move(timedelta(seconds=10))

    await world.workers.report(replace(worker, in_flight=9))

    (view,) = await world.workers.all()
    assert (view.started_at, view.last_seen_at) == (START, START + timedelta(seconds=10))
    assert view.in_flight == 9


async def test_a_worker_that_was_not_seen_for_half_a_minute_is_not_live(world: World) -> None:
    worker = a_worker()
    await world.workers.report(worker)

    world.clock.move(LIVE_WITHIN)
    assert await live(world) == [True]
    world.clock.move(TICK)
    assert await live(world) == [False]
    await world.workers.report(worker)
    assert await live(world) == [True]


async def test_those_not_seen_for_an_hour_are_forgotten_when_another_reports(world: World) -> None:
    lost, other = a_worker(), a_worker()
    await world.workers.report(lost)
    world.clock.move(HOUR)
    await world.workers.report(other)
    assert {view.id for view in await world.workers.all()} == {lost.id, other.id}

    world.clock.move(TICK)
    await world.workers.report(other)

    assert [view.id for view in await world.workers.all()] == [other.id]


async def test_whoever_reports_again_after_an_hour_has_been_there_all_along(world: World) -> None:
    worker = a_worker()
    await world.workers.report(worker)
    world.clock.move(2 * HOUR)

    await world.workers.report(worker)

    (view,) = await world.workers.all()
    assert (view.started_at, view.last_seen_at) == (START, START + 2 * HOUR)


async def test_a_worker_that_leaves_is_gone_and_others_stay(world: World) -> None:
    leaver, stayer = a_worker(), a_worker()
    for worker in (leaver, stayer):
        await world.workers.report(worker)

    await world.workers.leave(leaver.id)
    await world.workers.leave(leaver.id)

    assert [view.id for view in await world.workers.all()] == [stayer.id]


async def test_the_last_to_start_comes_first(world: World) -> None:
    first, second, third = (a_worker() for _ in range(3))
    for worker in (first, second, third):
        await world.workers.report(worker)
        world.clock.move(timedelta(seconds=1))
    await world.workers.report(first)

    assert [view.id for view in await world.workers.all()] == [third.id, second.id, first.id]
