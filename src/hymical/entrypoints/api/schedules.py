"""Schedules: how they do, and what people do with them."""

from litestar import Router, get, post
from litestar.di import NamedDependency

from hymical.application.jobs import ShowJob
from hymical.application.schedules import (
    ListSchedules,
    PauseSchedule,
    ResumeSchedule,
    RunScheduleNow,
    SchedulesView,
)
from hymical.entrypoints.api.provide import use_cases
from hymical.entrypoints.api.schemas.jobs import JobOut
from hymical.entrypoints.api.schemas.schedules import ScheduleOut, SchedulesOut


@get("/schedules", summary="List schedules with their next and last ticks")
async def list_schedules(list_schedules: NamedDependency[ListSchedules]) -> SchedulesOut:
    return SchedulesOut.of(await list_schedules())


@post("/schedules/{name:str}/run", status_code=202, summary="Run a schedule now, once; the job that does it")
async def run_schedule(
    name: str, run_schedule: NamedDependency[RunScheduleNow], show_job: NamedDependency[ShowJob]
) -> JobOut:
    return JobOut.of(await show_job(await run_schedule(name)))


@post("/schedules/{name:str}/pause", status_code=200, summary="Let a schedule's ticks pass")
async def pause_schedule(
    name: str,
    pause_schedule: NamedDependency[PauseSchedule],
    list_schedules: NamedDependency[ListSchedules],
) -> ScheduleOut:
    await pause_schedule(name)
    return _one_of(await list_schedules(), name)


@post("/schedules/{name:str}/resume", status_code=200, summary="Go on with a schedule, from its next tick")
async def resume_schedule(
    name: str,
    resume_schedule: NamedDependency[ResumeSchedule],
    list_schedules: NamedDependency[ListSchedules],
) -> ScheduleOut:
    await resume_schedule(name)
    return _one_of(await list_schedules(), name)


def _one_of(view: SchedulesView, name: str) -> ScheduleOut:
    return next(ScheduleOut.of(one) for one in view.schedules if one.schedule.name == name)


management = Router(
    "/",
    route_handlers=[list_schedules, run_schedule, pause_schedule, resume_schedule],
    dependencies=use_cases("list_schedules", "run_schedule", "show_job", "pause_schedule", "resume_schedule"),
)
