"""The jobs that are measured: one does nothing, as those of the others, and one tells."""

import asyncio
import time
from collections.abc import Callable

from pydantic import BaseModel

from hymical.domain.jobs import Ending, Finished
from hymical.domain.progress import StepStatus
from hymical.entrypoints.jobs.registry import job
from hymical.ports.jobs import JobContext

handle: Callable[[int], None] = lambda _: None  # noqa: E731


class Noop(BaseModel):
    number: int


@job(queue="bench")
async def bench_noop(payload: Noop, context: JobContext) -> Ending:  # noqa: ARG001
    """Tells that it began."""
    handle(payload.number)
    return Finished()


class Ticks(BaseModel):
    count: int


@job(queue="bench")
async def bench_ticks(payload: Ticks, context: JobContext) -> Ending:
    """Tells the monotonic time, which all processes of a machine share, every 10 ms."""
    for _ in range(payload.count):
        await asyncio.sleep(0.01)
        await context.publish("tick", StepStatus.PROGRESS, {"at": time.monotonic()})
    return Finished()
