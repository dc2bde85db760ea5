"""Schedules on the wire."""

from datetime import timedelta

from pydantic import BaseModel, Field

from hymical.application.schedules import SchedulesView, ScheduleView
from hymical.domain.jobs import JobState
from hymical.domain.schedules import CatchUp
from hymical.entrypoints.api.schemas.instants import Instant


class ScheduleOut(BaseModel):
    name: str
    job_type: str
    rule: str = Field(description="A cron expression, or times of day.")
    zone: str
    catch_up: CatchUp = Field(description="What becomes of ticks that passed while no scheduler ran.")
    paused: bool
    next: Instant | None = Field(description="The next tick; null while it is paused.")
    overdue_since: Instant | None = Field(
        description="A tick that no scheduler has run, though it was due for more than a minute."
    )
    last: Instant | None = Field(description="The last tick that was run, or when it was last run by hand.")
    last_job_id: str | None
    last_state: JobState | None = Field(description="Of the last job; null when it is not kept any more.")
    duration_ms: int | None = Field(description="How long the last job took; null until it has ended.")
    lag_ms: int | None = Field(description="How long behind its tick it began, or has waited so far.")
    error: str | None = Field(description="What went wrong in the last job.")

    @classmethod
    def of(cls, view: ScheduleView) -> "ScheduleOut":
        return cls(
            name=view.schedule.name,
            job_type=view.schedule.job_type,
            rule=str(view.schedule.rule),
            zone=view.schedule.zone,
            catch_up=view.schedule.catch_up,
            paused=view.paused_at is not None,
            next=view.next,
            overdue_since=view.overdue_since,
            last=view.last.due_at if view.last else None,
            last_job_id=view.last.job_id if view.last else None,
            last_state=view.job.state if view.job else None,
            duration_ms=_milliseconds(view.duration),
            lag_ms=_milliseconds(view.lag),
            error=view.job.error if view.job else None,
        )


class SchedulesOut(BaseModel):
    items: list[ScheduleOut]
    schedulers: int = Field(description="How many schedulers are alive; with none, nothing is run.")

    @classmethod
    def of(cls, view: SchedulesView) -> "SchedulesOut":
        return cls(items=[ScheduleOut.of(one) for one in view.schedules], schedulers=view.schedulers)


def _milliseconds(duration: timedelta | None) -> int | None:
    return None if duration is None else round(duration / timedelta(milliseconds=1))
