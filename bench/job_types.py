"""The job that is measured: it does nothing, as those of the others."""

from collections.abc import Callable

from pydantic import BaseModel

from hymical.domain.jobs import Ending, Finished
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
