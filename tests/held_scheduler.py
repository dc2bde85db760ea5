"""A scheduler that stands still between a tick and its job: `python -m tests.held_scheduler URL AT before|after`."""

import asyncio
import sys
from collections.abc import Sequence
from datetime import datetime

from pydantic import SecretStr

from hymical.adapters.postgres.jobs import PostgresJobQueue
from hymical.domain.jobs import NewJob
from hymical.entrypoints.bootstrap.resources import Role, open_container
from hymical.entrypoints.bootstrap.settings import Settings
from hymical.ports.jobs import Enqueued, JobQueue
from tests.clocks import StoppedClock


class _Held:
    def __init__(self, queue: JobQueue, *, before: bool) -> None:
        self._queue = queue
        self._before = before

    async def enqueue(self, jobs: Sequence[NewJob]) -> Sequence[Enqueued]:
        if not self._before:
            await self._queue.enqueue(jobs)
        sys.stdout.write("held\n")
        sys.stdout.flush()
        await asyncio.Event().wait()
        raise AssertionError


async def _hold(database_url: str, at: datetime, *, before: bool) -> None:
    settings = Settings(database_url=SecretStr(database_url), job_modules=("tests.scheduled_jobs",))
    clock = StoppedClock(at)
    async with open_container(settings, Role.SCHEDULER, clock=clock) as container:
        queue = PostgresJobQueue(container.connections(), clock)
        container.job_queue.override(_Held(queue, before=before))
        await container.evaluate_schedules()()


if __name__ == "__main__":
    asyncio.run(_hold(sys.argv[1], datetime.fromisoformat(sys.argv[2]), before=sys.argv[3] == "before"))
