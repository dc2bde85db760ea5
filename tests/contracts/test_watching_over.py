"""The operator is told once of schedules without a scheduler and of queues without a worker."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from hymical.adapters.cronsim.calendar import CronSimCalendar
from hymical.application.alerts import WatchOver
from hymical.application.schedules import timetables
from hymical.domain.alerts import PATIENCE
from hymical.domain.deliveries import Delivery
from hymical.domain.destinations import DestinationChange, DestinationState, NewDestination
from hymical.domain.ids import OPERATOR
from hymical.domain.jobs import JobCatalog, JobType
from hymical.domain.messages import Message
from hymical.domain.schedules import Cron, Schedule
from hymical.ports.workers import LIVE_WITHIN, WorkerKind, WorkerPresence
from tests.builders import LEASE, a_secret, ids
from tests.worlds import World

CATALOG = JobCatalog(types={"export": JobType(name="export", queue="exports")}, max_retries=3)
HOURLY = Schedule(name="hourly", job_type="export", rule=Cron(expression="0 * * * *"))


@pytest.fixture
async def world(world: World) -> World:
    """With an operator who is told of events."""
    await world.destinations.add(
        NewDestination(id=OPERATOR, form_id=None, url="https://example.com/ops", secrets=(a_secret(),))
    )
    return world


class BrokenQueue:
    """A queue that cannot be told of anything."""

    async def owe(self, messages: Sequence[Message], deliveries: Sequence[Delivery]) -> None:
        raise ZeroDivisionError


def watch(world: World, *schedules: Schedule) -> WatchOver:
    return WatchOver(
        timetables=timetables(CATALOG, CronSimCalendar(), schedules),
        workers=world.workers,
        history=world.job_history,
        book=world.alerts,
        destinations=world.destinations,
        queue=world.queue,
        transactions=world.transactions,
        ids=ids,
    )


async def told(world: World) -> list[tuple[str, dict[str, Any]]]:
    """The type and data of each event that the operator has not been told of before."""
    claimed = await world.queue.claim(limit=100, lease=timedelta(days=1))
    return [
        (one.message.type, json.loads(one.message.body)["data"])
        for one in sorted(claimed.deliveries, key=lambda one: one.message.id)
    ]


async def reports(world: World, kind: WorkerKind = WorkerKind.WORKER, *queues: str) -> None:
    await world.workers.report(
        WorkerPresence(
            id=ids.worker(), host="kiel", pid=7, version="1", kind=kind, in_flight=0, queues=queues
        )
    )


async def test_nothing_is_told_while_nothing_is_to_be_done(world: World) -> None:
    look = watch(world)
    for _ in range(3):
        await look()
        world.clock.move(PATIENCE)

    assert await told(world) == []


async def test_schedules_without_a_scheduler_are_told_of_once_and_so_is_its_return(world: World) -> None:
    looks = [watch(world, HOURLY) for _ in range(3)]
    for _ in range(4):
        await asyncio.gather(*(look() for look in looks))
        world.clock.move(PATIENCE)
    assert await told(world) == [("scheduler.missing", {})]

    await reports(world, WorkerKind.SCHEDULER)
    for _ in range(2):
        await asyncio.gather(*(look() for look in looks))

    assert await told(world) == [("scheduler.back", {})]


async def test_a_worker_is_no_scheduler(world: World) -> None:
    look = watch(world, HOURLY)
    for _ in range(2):
        await reports(world, WorkerKind.WORKER, "exports")
        await look()
        world.clock.move(PATIENCE)

    assert [kind for kind, _ in await told(world)] == ["scheduler.missing"]


async def test_a_scheduler_that_is_restarted_within_a_minute_is_not_missed(world: World) -> None:
    look = watch(world, HOURLY)
    await look()
    world.clock.move(PATIENCE / 2)
    await reports(world, WorkerKind.SCHEDULER)
    await look()
    world.clock.move(LIVE_WITHIN + timedelta(seconds=1))
    await look()

    assert await told(world) == []


async def test_a_scheduler_that_died_is_missed(world: World) -> None:
    look = watch(world, HOURLY)
    await reports(world, WorkerKind.SCHEDULER)
    await look()
    world.clock.move(LIVE_WITHIN + timedelta(seconds=1))
    await look()
    world.clock.move(PATIENCE)
    await look()

    assert await told(world) == [("scheduler.missing", {})]


async def test_due_jobs_without_a_worker_of_their_queue_are_told_of_once_and_so_is_their_worker(
    world: World,
) -> None:
    await world.jobs.enqueue([CATALOG.job("export", {}, id=ids.job())])
    look = watch(world)
    for _ in range(3):
        await reports(world, WorkerKind.WORKER, "metrics")
        await look()
        world.clock.move(PATIENCE)
    assert await told(world) == [("queue.unserved", {"queue": "exports"})]

    await reports(world, WorkerKind.WORKER, "exports")
    await look()
    await look()

    assert await told(world) == [("queue.served", {"queue": "exports"})]


async def test_jobs_whose_only_worker_died_with_them_are_told_of(world: World) -> None:
    await world.jobs.enqueue([CATALOG.job("export", {}, id=ids.job())])
    await reports(world, WorkerKind.WORKER, "exports")
    assert (await world.jobs.claim(["exports"], limit=1, lease=timedelta(hours=1))).jobs
    look = watch(world)
    for _ in range(2):
        world.clock.move(PATIENCE)
        await look()

    assert await told(world) == [("queue.unserved", {"queue": "exports"})]


async def test_jobs_that_wait_for_their_time_need_no_worker_yet(world: World) -> None:
    later = world.clock.now() + timedelta(days=1)
    await world.jobs.enqueue([CATALOG.job("export", {}, id=ids.job(), run_at=later)])
    look = watch(world)
    for _ in range(3):
        await look()
        world.clock.move(PATIENCE)

    assert await told(world) == []


async def test_a_queue_that_was_paused_is_left_alone(world: World) -> None:
    await world.jobs.enqueue([CATALOG.job("export", {}, id=ids.job())])
    await world.jobs.pause_queue("exports")
    look = watch(world)
    for _ in range(3):
        await look()
        world.clock.move(PATIENCE)

    assert await told(world) == []


async def test_what_was_not_told_because_the_transaction_broke_off_is_told_later(world: World) -> None:
    look = watch(world, HOURLY)
    await look()
    world.clock.move(PATIENCE)

    with pytest.raises(ZeroDivisionError):
        await replace(look, queue=BrokenQueue())()  # type: ignore[arg-type]  # nothing else is called
    await look()

    assert await told(world) == [("scheduler.missing", {})]


async def test_without_an_address_of_the_operator_it_is_logged_only(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    await world.destinations.change(OPERATOR, DestinationChange(state=DestinationState.DISABLED))
    look = watch(world, HOURLY)
    for _ in range(3):
        await look()
        world.clock.move(PATIENCE)

    assert (await world.queue.claim(limit=10, lease=LEASE)).deliveries == []
    assert [record.message for record in caplog.records if record.levelname == "WARNING"] == [
        "scheduler.missing"
    ]
