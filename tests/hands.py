"""A job worker by hand: a test decides when a job is claimed, tells something, and ends."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta

from pydantic import SecretStr

from hymical.domain.ids import JobId
from hymical.domain.jobs import AskHuman, Ending, Errored, Job, Json, NewJob, Priority, settle
from hymical.domain.progress import ProgressEvent, StepStatus
from hymical.entrypoints.bootstrap.resources import Role, open_container
from hymical.entrypoints.bootstrap.settings import Settings
from hymical.ports.jobs import JobQueue, JobVerdict, SettledJob
from hymical.ports.progress import ProgressBus
from tests.builders import ids

LEASE = timedelta(minutes=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hands:
    queue: JobQueue
    progress: ProgressBus

    async def enqueue(
        self,
        *,
        queue: str = "default",
        type: str = "test",
        payload: Json | None = None,
        unique_key: str | None = None,
        run_at: datetime | None = None,
    ) -> JobId:
        job = NewJob(
            id=ids.job(),
            queue=queue,
            type=type,
            version=1,
            payload=json.dumps(payload or {}),
            priority=Priority.NORMAL,
            max_retries=0,
            unique_key=unique_key,
            run_at=run_at,
        )
        (enqueued,) = await self.queue.enqueue([job])
        return enqueued.job_id

    async def claim(self, queue: str = "default") -> Job:
        (job,) = (await self.queue.claim([queue], limit=1, lease=LEASE)).jobs
        return job

    async def begin(self, queue: str = "default") -> Job:
        """A new job that is being worked at."""
        await self.enqueue(queue=queue)
        return await self.claim(queue)

    async def tell(
        self, job: Job, *steps: str, status: StepStatus = StepStatus.PROGRESS, message: Json | None = None
    ) -> None:
        """An event for each step, published one by one."""
        for step in steps:
            event = ProgressEvent(job_id=job.id, step=step, status=status, message=message)
            await self.progress.publish(job.lease, [event])

    async def end(self, job: Job, ending: Ending | Errored) -> JobVerdict:
        event = None
        if isinstance(ending, AskHuman):
            event = ProgressEvent(job_id=job.id, step=ending.question.key, status=StepStatus.PAUSED)
        settled = SettledJob(lease=job.lease, settlement=settle(job, ending, dice=0.5), event=event)
        (verdict,) = await self.queue.settle([settled])
        return verdict


@asynccontextmanager
async def hands_at(database_url: str) -> AsyncIterator[Hands]:
    settings = Settings(database_url=SecretStr(database_url))
    async with open_container(settings, Role.OPERATOR) as container:
        yield Hands(queue=container.job_queue(), progress=container.progress())
