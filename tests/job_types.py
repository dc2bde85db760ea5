"""Types of jobs for tests; a worker process finds them by FORMS_JOB_MODULES=tests.job_types."""

import asyncio
from datetime import timedelta

from pydantic import BaseModel

from hymical.application.forms import ShowForm
from hymical.domain.errors import NotFound
from hymical.domain.ids import FormId
from hymical.domain.jobs import AskHuman, Ending, Finished, GiveUp, Question, SubjectGone
from hymical.domain.progress import StepStatus
from hymical.entrypoints.jobs.registry import job
from hymical.ports.jobs import JobContext
from hymical.ports.transactions import Transactions


class Count(BaseModel):
    """`stands_still_at` is where the first run never goes on, with its work so far saved."""

    up_to: int
    stands_still_at: int | None = None


@job(queue="counts")
async def count(payload: Count, context: JobContext, *, transactions: Transactions) -> Ending:
    """Counts on from where the run before it came to, each number once: it is told and kept together."""
    start = (context.job.checkpoint or {}).get("counted", 0)
    assert isinstance(start, int)
    for number in range(start + 1, payload.up_to + 1):
        async with transactions.begin():
            await context.save({"counted": number})
            await context.publish("count", StepStatus.PROGRESS, {"counted": number})
        if number == payload.stands_still_at and context.job.claim_count == 1:
            await asyncio.Event().wait()
    return Finished(result={"began_behind": start})


class Nothing(BaseModel):
    pass


@job(queue="counts", timeout=timedelta(milliseconds=50), max_retries=0)
async def take_too_long(payload: Nothing, context: JobContext) -> Ending:
    await asyncio.Event().wait()
    return Finished()


@job(queue="counts", max_retries=0)
async def break_down(payload: Nothing, context: JobContext) -> Ending:
    raise ZeroDivisionError("as told")


@job(queue="counts")
async def ask(payload: Nothing, context: JobContext) -> Ending:
    answer = context.job.answers.get("go_on")
    if answer is None:
        return AskHuman(question=Question(key="go_on", text="Go on?", choices=("yes", "no")))
    return Finished() if answer.text == "yes" else GiveUp(error="was told not to")


class OfForm(BaseModel):
    form_id: str


@job(queue="forms")
async def name_form(payload: OfForm, context: JobContext, *, show_form: ShowForm) -> Ending:
    """Says what a form is called, by a use case out of the container."""
    try:
        form = await show_form(FormId(payload.form_id))
    except NotFound:
        return SubjectGone(what=f"the form {payload.form_id}")
    await context.publish("name", StepStatus.COMPLETED, {"name": form.name})
    return Finished(result={"name": form.name})
