"""What is found amiss, on both kinds of adapters."""

from collections.abc import Sequence
from datetime import timedelta

from hymical.adapters.cronsim.calendar import CronSimCalendar
from hymical.application.doctor import Examine
from hymical.application.schedules import timetables
from hymical.domain.destinations import Destination, DestinationChange, DestinationState, Trouble
from hymical.domain.doctor import CLOCK_TOLERANCE, Ailment, Finding
from hymical.domain.errors import InvalidValue
from hymical.domain.jobs import JobCatalog, JobType
from hymical.domain.schedules import Cron, Schedule
from hymical.ports.clock import Clock
from hymical.ports.workers import LIVE_WITHIN, WorkerKind, WorkerPresence
from tests.builders import a_new_job, ids
from tests.clocks import START, StoppedClock
from tests.worlds import World

CATALOG = JobCatalog(types={"export": JobType(name="export", queue="exports")}, max_retries=3)
HOURLY = Schedule(name="hourly", job_type="export", rule=Cron(expression="0 * * * *"))
TROUBLE = Trouble(failing_since=START, failures_in_a_row=3)


class OnlyExample:
    """Nothing but example.com may be called."""

    async def check(self, url: str) -> None:
        if "example.com" not in url:
            raise InvalidValue("url", "may not be called")


def examine(
    world: World, *, clock: Clock | None = None, alert_url: str | None = "https://example.com/ops"
) -> Examine:
    return Examine(
        inspection=world.inspection,
        workers=world.workers,
        timetables=timetables(CATALOG, CronSimCalendar(), [HOURLY]),
        history=world.job_history,
        health=world.health,
        targets=OnlyExample(),
        clock=clock or world.clock,
        alert_url=alert_url,
        seals=True,
    )


async def everybody_works(world: World) -> None:
    for kind, queues in ((WorkerKind.WORKER, ()), (WorkerKind.SCHEDULER, ())):
        await world.workers.report(
            WorkerPresence(
                id=ids.worker(), host="kiel", pid=7, version="1", kind=kind, in_flight=0, queues=queues
            )
        )


def about(findings: Sequence[Finding], destination: Destination) -> list[Ailment]:
    return [one.ailment for one in findings if one.subject == destination.id]


async def test_nothing_is_found_where_all_is_well(world: World) -> None:
    await everybody_works(world)
    await world.destination()

    assert await examine(world)() == []


async def test_processes_that_were_not_seen_lately_are_missed(world: World) -> None:
    await everybody_works(world)
    world.clock.move(LIVE_WITHIN + timedelta(seconds=1))

    missed = [one.ailment for one in await examine(world)()]

    assert missed == [Ailment.WORKER_MISSING, Ailment.SCHEDULER_MISSING]


async def test_a_worker_of_jobs_delivers_nothing(world: World) -> None:
    await everybody_works(world)
    world.clock.move(LIVE_WITHIN + timedelta(seconds=1))
    worker = WorkerPresence(
        id=ids.worker(), host="kiel", pid=7, version="1", in_flight=0, queues=("exports",)
    )
    await world.workers.report(worker)

    assert Ailment.WORKER_MISSING in [one.ailment for one in await examine(world)()]


async def test_a_clock_is_off_in_either_direction_beyond_what_is_tolerated(world: World) -> None:
    await everybody_works(world)
    for seconds, found in ((5, []), (-5, []), (90, ["+90"]), (-90, ["-90"])):
        machine = StoppedClock(START + timedelta(seconds=seconds))
        assert [one.fact for one in await examine(world, clock=machine)()] == found
    assert timedelta(seconds=5) == CLOCK_TOLERANCE


async def test_a_queue_with_jobs_and_no_worker_is_found_unless_it_is_paused(world: World) -> None:
    await everybody_works(world)
    await world.jobs.enqueue([a_new_job(queue="exports")])

    (found,) = await examine(world)()
    await world.jobs.pause_queue("exports")

    assert (found.ailment, found.subject, found.fact) == (Ailment.QUEUE_UNSERVED, "exports", "1")
    assert await examine(world)() == []


async def test_destinations_that_fail_are_disabled_or_may_not_be_called_are_found(world: World) -> None:
    await everybody_works(world)
    well, failing, disabled, blocked = [
        await world.destination(url) for url in (*["https://example.com/hook"] * 3, "https://localhost/hook")
    ]
    await world.health.save({failing.id: TROUBLE})
    await world.destinations.change(disabled.id, DestinationChange(state=DestinationState.DISABLED))

    findings = await examine(world)()

    assert about(findings, well) == []
    assert about(findings, failing) == [Ailment.DESTINATION_FAILING]
    assert about(findings, disabled) == [Ailment.DESTINATION_DISABLED]
    assert about(findings, blocked) == [Ailment.DESTINATION_BLOCKED]


async def test_an_alert_address_that_may_not_be_called_is_wrong_and_none_is_a_choice(world: World) -> None:
    await everybody_works(world)

    (blocked,) = await examine(world, alert_url="https://localhost/ops")()
    (unset,) = await examine(world, alert_url=None)()

    assert (blocked.ailment, blocked.ailment.is_wrong) == (Ailment.ALERTS_BLOCKED, True)
    assert (unset.ailment, unset.ailment.is_wrong) == (Ailment.ALERTS_UNSET, False)


async def test_destinations_come_by_pages_with_their_trouble_and_without_deleted_ones(world: World) -> None:
    made = [await world.destination() for _ in range(4)]
    await world.health.save({made[2].id: TROUBLE})
    await world.destinations.delete(made[1].id)

    first = await world.health.page(after=None, limit=2)
    second = await world.health.page(after=first[-1][0].id, limit=2)

    assert [(one.id, trouble) for one, trouble in first] == [(made[0].id, None), (made[2].id, TROUBLE)]
    assert [(one.id, trouble) for one, trouble in second] == [(made[3].id, None)]
