"""Job types for tests of those who watch: named in FORMS_JOB_MODULES."""

import asyncio

from pydantic import BaseModel

from hymical.domain.jobs import AskHuman, Ending, Finished, Question
from hymical.domain.progress import StepStatus
from hymical.entrypoints.jobs.registry import job
from hymical.ports.jobs import JobContext

QUEUE = "watched"
SURE = Question(key="sure", text="Send all of them?", choices=("yes", "no"))


class Counting(BaseModel):
    steps: int


@job(queue=QUEUE)
async def count_up(payload: Counting, context: JobContext) -> Ending:
    """Tells of each number, a little later than of the one before."""
    for number in range(1, payload.steps + 1):
        await context.publish("count", StepStatus.PROGRESS, {"number": number})
        await asyncio.sleep(0.005)
    return Finished(result={"counted": payload.steps})


class Sending(BaseModel):
    pass


@job(queue=QUEUE)
async def send_all(payload: Sending, context: JobContext) -> Ending:
    """Asks first."""
    answer = context.job.answers.get(SURE.key)
    if answer is None:
        await context.publish("prepare", StepStatus.COMPLETED)
        return AskHuman(question=SURE)
    await context.publish("send", StepStatus.COMPLETED if answer.text == "yes" else StepStatus.SKIPPED)
    return Finished(result={"sent": answer.text == "yes"})
