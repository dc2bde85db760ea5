"""Types of jobs and schedules for tests, as a site has its own; named in FORMS_JOB_MODULES."""

from pydantic import BaseModel

from hymical.domain.jobs import Ending, Finished, GiveUp
from hymical.domain.progress import StepStatus
from hymical.entrypoints.jobs.registry import job
from hymical.entrypoints.jobs.schedules import schedule
from hymical.ports.jobs import JobContext


class Report(BaseModel):
    subject: str


@job(queue="default")
async def report(payload: Report, context: JobContext) -> Ending:
    await context.publish("write", StepStatus.COMPLETED, {"subject": payload.subject})
    return Finished(result={"subject": payload.subject})


@job(queue="default")
async def hopeless(payload: Report, context: JobContext) -> Ending:
    return GiveUp(error=f"nothing can be said of {payload.subject}")


SCHEDULES = (
    schedule(
        "nightly", job="report", cron="0 3 * * *", zone="Europe/Berlin", payload={"subject": "the night"}
    ),
    schedule("doomed", job="hopeless", at=["04:00"], payload={"subject": "doom"}),
)
