"""Evaluating schedules over a ledger and a queue: each tick becomes one job."""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

import pytest

from hymical.adapters.cronsim.calendar import CronSimCalendar
from hymical.application.schedules import (
    EvaluateSchedules,
    ListSchedules,
    PauseSchedule,
    ResumeSchedule,
    RunScheduleNow,
    ScheduleView,
    timetables,
)
from hymical.domain.errors import InvalidValue, NotFound
from hymical.domain.ids import JobId
from hymical.domain.jobs import Finished, JobCatalog, JobState, JobType, NewJob, settle
from hymical.domain.schedules import CatchUp, Cron, Schedule
from hymical.ports.jobs import JobFilter, JobView, SettledJob
from hymical.ports.workers import LIVE_WITHIN, WorkerKind, WorkerPresence
from tests.builders import ids
from tests.clocks import START
from tests.worlds import World

CATALOG = JobCatalog(types={"report": JobType(name="report", queue="default")}, max_retries=3)
MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
ALL_JOBS = 1_000


def hourly(catch_up: CatchUp = CatchUp.ONCE, name: str = "hourly", bound: int = 5) -> Schedule:
    return Schedule(
        name=name,
        job_type="report",
        rule=Cron(expression="0 * * * *"),
        catch_up=catch_up,
        bound=bound,
        payload={"of": name},
    )


def scheduler(world: World, *schedules: Schedule, catalog: JobCatalog = CATALOG) -> EvaluateSchedules:
    return EvaluateSchedules(
        timetables=timetables(CATALOG, CronSimCalendar(), schedules),
        ledger=world.ledger,
        jobs=world.jobs,
        catalog=catalog,
        transactions=world.transactions,
        ids=ids,
    )


async def jobs(world: World) -> Sequence[JobView]:
    """The oldest first."""
    return list(reversed(await world.job_history.page(JobFilter(), before=None, limit=ALL_JOBS)))


async def view(world: World, schedule: Schedule) -> ScheduleView:
    (found,) = (await listing(world, schedule)()).schedules
    return found


def listing(world: World, *schedules: Schedule) -> ListSchedules:
    return ListSchedules(
        timetables=timetables(CATALOG, CronSimCalendar(), schedules),
        ledger=world.ledger,
        history=world.job_history,
        workers=world.workers,
    )


def by_hand(world: World, schedule: Schedule) -> RunScheduleNow:
    return RunScheduleNow(
        timetables=timetables(CATALOG, CronSimCalendar(), [schedule]),
        ledger=world.ledger,
        jobs=world.jobs,
        catalog=CATALOG,
        transactions=world.transactions,
        ids=ids,
    )


class BrokenQueue:
    """A queue whose process dies when it is given jobs."""

    def __init__(self, world: World) -> None:
        self._queue = world.jobs

    async def enqueue(self, jobs: Sequence[NewJob]) -> None:
        await self._queue.enqueue(jobs)
        raise ZeroDivisionError


async def test_a_new_schedule_begins_with_its_next_tick(world: World) -> None:
    world.clock.move(30 * MINUTE)
    evaluate = scheduler(world, hourly())

    assert (await evaluate()).next_due == 30 * MINUTE
    world.clock.move(30 * MINUTE - timedelta(microseconds=1))
    assert not (await evaluate()).enqueued
    world.clock.move(timedelta(microseconds=1))
    done = await evaluate()

    (job,) = await jobs(world)
    assert list(done.enqueued) == [job.id]
    assert (job.type, job.queue, job.payload) == ("report", "default", {"of": "hourly"})
    assert job.run_at == START + HOUR
    assert done.next_due == HOUR


async def test_a_second_pass_finds_nothing_more(world: World) -> None:
    evaluate = scheduler(world, hourly())
    await evaluate()
    world.clock.move(HOUR)
    await evaluate()

    assert not (await evaluate()).enqueued
    assert len(await jobs(world)) == 1


async def test_three_schedulers_run_each_tick_of_an_hour_once(world: World) -> None:
    minutely = Schedule(name="minutely", job_type="report", rule=Cron(expression="* * * * *"))
    evaluations = [scheduler(world, minutely) for _ in range(3)]
    for _ in range(121):
        await asyncio.gather(*(evaluate() for evaluate in evaluations))
        world.clock.move(timedelta(seconds=30))

    assert [job.run_at for job in await jobs(world)] == [START + n * MINUTE for n in range(1, 61)]


@pytest.mark.parametrize(
    ("catch_up", "hours"),
    [(CatchUp.SKIP, []), (CatchUp.ONCE, [9]), (CatchUp.ALL, [5, 6, 7, 8, 9])],
)
async def test_ticks_that_nobody_ran_are_caught_up_with_by_the_rule_and_once(
    world: World, catch_up: CatchUp, hours: list[int]
) -> None:
    schedule = hourly(catch_up)
    evaluate = scheduler(world, schedule)
    await evaluate()
    world.clock.move(9 * HOUR + 10 * MINUTE)

    await evaluate()
    await evaluate()

    assert len(await jobs(world)) == len(hours)
    standing = (await world.ledger.standings()).of["hourly"]
    assert standing.since == START + 9 * HOUR
    assert (standing.last.due_at if standing.last else None) == (START + 9 * HOUR if hours else None)
    world.clock.move(50 * MINUTE)
    await evaluate()
    assert len(await jobs(world)) == len(hours) + 1


async def test_a_scheduler_that_dies_between_tick_and_job_leaves_neither_and_another_runs_it_once(
    world: World,
) -> None:
    evaluate = scheduler(world, hourly())
    await evaluate()
    world.clock.move(HOUR)
    dying = EvaluateSchedules(
        timetables=evaluate.timetables,
        ledger=world.ledger,
        jobs=BrokenQueue(world),  # type: ignore[arg-type]  # nothing else is called
        catalog=CATALOG,
        transactions=world.transactions,
        ids=ids,
    )

    with pytest.raises(ZeroDivisionError):
        await dying()
    assert not await jobs(world)
    await evaluate()
    await evaluate()

    assert len(await jobs(world)) == 1


async def test_a_clock_that_jumps_forward_is_caught_up_with_by_the_rule(world: World) -> None:
    evaluate = scheduler(world, hourly(CatchUp.ONCE))
    await evaluate()
    world.clock.move(30 * DAY)

    await evaluate()

    assert len(await jobs(world)) == 1


async def test_a_clock_that_steps_back_over_a_tick_does_not_run_it_again(world: World) -> None:
    evaluate = scheduler(world, hourly())
    await evaluate()
    world.clock.move(HOUR)
    await evaluate()
    world.clock.move(-2 * MINUTE)

    for _ in range(10):
        await evaluate()
        world.clock.move(MINUTE)

    assert len(await jobs(world)) == 1


async def test_a_clock_that_was_far_ahead_does_not_stop_a_schedule_and_runs_nothing_twice(
    world: World,
) -> None:
    evaluate = scheduler(world, hourly())
    await evaluate()
    world.clock.move(DAY)
    await evaluate()
    assert len(await jobs(world)) == 1
    world.clock.move(-DAY)

    for _ in range(26):
        await evaluate()
        world.clock.move(HOUR)

    # 25 more hours, of which the one that was run ahead of time is not run again
    assert len(await jobs(world)) == 1 + 25 - 1


async def test_a_paused_schedule_is_not_run_and_goes_on_with_its_next_tick(world: World) -> None:
    schedule = hourly(CatchUp.ALL)
    evaluate = scheduler(world, schedule)
    await evaluate()
    pause = PauseSchedule(timetables=evaluate.timetables, ledger=world.ledger)
    resume = ResumeSchedule(timetables=evaluate.timetables, ledger=world.ledger)

    await pause("hourly")
    world.clock.move(5 * HOUR + MINUTE)
    assert not (await evaluate()).enqueued
    assert (await view(world, schedule)).next is None
    await resume("hourly")
    assert not (await evaluate()).enqueued
    assert (await view(world, schedule)).next == START + 6 * HOUR
    world.clock.move(HOUR)

    assert len((await evaluate()).enqueued) == 1


async def test_a_scheduler_looks_again_in_time_for_one_that_is_resumed(world: World) -> None:
    evaluate = scheduler(world, hourly())
    await evaluate()
    await world.ledger.pause("hourly")

    assert (await evaluate()).next_due == HOUR


async def test_a_run_by_hand_is_a_job_at_once_paused_or_not_and_takes_no_tick(world: World) -> None:
    schedule = hourly()
    evaluate = scheduler(world, schedule)
    await evaluate()
    await world.ledger.pause("hourly")
    world.clock.move(MINUTE)

    job_id = await by_hand(world, schedule)("hourly")

    (job,) = await jobs(world)
    assert (job.id, job.run_at, job.payload) == (job_id, START + MINUTE, {"of": "hourly"})
    last = (await view(world, schedule)).last
    assert last is not None
    assert (last.due_at, last.job_id) == (START + MINUTE, job_id)
    await world.ledger.resume("hourly")
    world.clock.move(HOUR)
    assert len((await evaluate()).enqueued) == 1


async def test_a_schedule_that_is_not_there_is_refused(world: World) -> None:
    evaluate = scheduler(world, hourly())
    for use in (
        by_hand(world, hourly()),
        PauseSchedule(timetables=evaluate.timetables, ledger=world.ledger),
        ResumeSchedule(timetables=evaluate.timetables, ledger=world.ledger),
    ):
        with pytest.raises(NotFound) as refused:
            await use("daily")
        assert (refused.value.kind, refused.value.id) == ("schedule", "daily")


async def test_what_the_code_does_not_know_any_more_is_left_alone(world: World) -> None:
    await scheduler(world, hourly(name="before"))()
    world.clock.move(2 * HOUR)

    assert not (await scheduler(world, hourly())()).enqueued
    assert [one.schedule.name for one in (await listing(world, hourly())()).schedules] == ["hourly"]


async def test_without_schedules_there_is_nothing_to_wait_for(world: World) -> None:
    assert (await scheduler(world)()).next_due is None


async def test_a_schedule_that_no_scheduler_has_seen_is_listed_with_its_next_tick(world: World) -> None:
    found = await view(world, hourly())

    assert (found.next, found.last, found.job, found.lag) == (START + HOUR, None, None, None)
    assert found.overdue_since is None


async def test_the_list_tells_what_became_of_the_last_tick(world: World) -> None:
    schedule = hourly()
    evaluate = scheduler(world, schedule)
    await evaluate()
    world.clock.move(HOUR + timedelta(seconds=2))
    (job_id,) = (await evaluate()).enqueued
    world.clock.move(timedelta(seconds=3))
    waiting = await view(world, schedule)
    claimed = (await world.jobs.claim(["default"], limit=1, lease=MINUTE)).jobs[0]
    world.clock.move(timedelta(seconds=10))
    settlement = settle(claimed, Finished(), 0.5)
    await world.jobs.settle([SettledJob(lease=claimed.lease, settlement=settlement)])
    world.clock.move(MINUTE)

    ended = await view(world, schedule)

    assert (waiting.lag, waiting.duration) == (timedelta(seconds=5), None)
    assert ended.job is not None
    assert (ended.job.id, ended.job.state) == (job_id, JobState.COMPLETED)
    assert (ended.lag, ended.duration) == (timedelta(seconds=5), timedelta(seconds=10))
    assert ended.last is not None
    assert ended.last.due_at == START + HOUR


async def test_the_list_still_tells_of_a_tick_whose_job_is_gone(world: World) -> None:
    schedule = hourly()
    evaluate = scheduler(world, schedule)
    await evaluate()
    world.clock.move(HOUR + timedelta(seconds=2))
    (job_id,) = (await evaluate()).enqueued
    await world.delete_job(JobId(job_id))

    found = await view(world, schedule)

    assert (found.job, found.lag) == (None, timedelta(seconds=2))
    assert found.last is not None


async def test_a_tick_that_nobody_runs_makes_its_schedule_overdue_after_a_minute(world: World) -> None:
    schedule = hourly()
    await scheduler(world, schedule)()
    world.clock.move(HOUR + MINUTE)
    assert (await view(world, schedule)).overdue_since is None
    world.clock.move(timedelta(microseconds=1))

    assert (await view(world, schedule)).overdue_since == START + HOUR
    await world.ledger.pause("hourly")
    assert (await view(world, schedule)).overdue_since is None


async def test_the_list_counts_the_schedulers_that_live(world: World) -> None:
    for kind in (WorkerKind.WORKER, WorkerKind.SCHEDULER, WorkerKind.SCHEDULER):
        await world.workers.report(
            WorkerPresence(id=ids.worker(), host="kiel", pid=7, version="1", kind=kind, in_flight=0)
        )
    assert (await listing(world)()).schedulers == 2
    world.clock.move(LIVE_WITHIN + timedelta(microseconds=1))

    assert (await listing(world)()).schedulers == 0


def a_schedule(**changes: object) -> Schedule:
    given: Mapping[str, object] = {"name": "x", "job_type": "report", "rule": Cron(expression="0 7 * * *")}
    return Schedule(**{**given, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("schedules", "words"),
    [
        ([a_schedule(zone="Europe/Berlim")], "zone 'Europe/Berlim' is no IANA time zone"),
        ([a_schedule(zone="../../etc/passwd")], "zone '../../etc/passwd' is no IANA time zone"),
        ([a_schedule(zone="Europe")], "zone 'Europe' is no IANA time zone"),
        ([a_schedule(zone="")], "zone '' is no IANA time zone"),
        ([a_schedule(rule=Cron(expression="0 25 * * *"))], "cron '0 25 * * *' cannot be read: bad hour"),
        ([a_schedule(job_type="raport")], "job 'raport' is no job type"),
        ([a_schedule(), a_schedule()], "name is that of another schedule too"),
    ],
)
def test_what_could_never_be_run_is_refused_before_anything_is(
    schedules: Sequence[Schedule], words: str
) -> None:
    with pytest.raises(InvalidValue) as refused:
        timetables(CATALOG, CronSimCalendar(), schedules)

    assert refused.value.field == "schedule 'x':"
    assert words in refused.value.rule


async def test_a_daily_schedule_keeps_its_hour_on_the_wall_over_both_changes_of_the_clocks(
    world: World,
) -> None:
    daily = a_schedule(zone="Europe/Berlin", rule=Cron(expression="30 2 * * *"))
    evaluate = scheduler(world, daily)
    for start in (datetime(2027, 3, 26, 12, tzinfo=UTC), datetime(2027, 10, 29, 12, tzinfo=UTC)):
        world.clock.move(start - world.clock.now())
        await evaluate()
        before = len(await jobs(world))
        for _ in range(4 * 24 * 4):
            world.clock.move(15 * MINUTE)
            await evaluate()
        made = (await jobs(world))[before:]
        assert len({job.run_at.date() for job in made}) == len(made) == 4
