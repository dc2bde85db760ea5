"""What jobs tell while they run, for those who watch."""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass

from hymical.domain.ids import JobId
from hymical.domain.jobs import FINAL
from hymical.domain.progress import RecordedEvent
from hymical.ports.jobs import JobHistory, JobView
from hymical.ports.progress import ProgressBus

LOOK_AGAIN_SECONDS = 2.0
"""How long whoever watches relies on being told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobNews:
    """How a job stands, with the events that were not told before."""

    job: JobView
    events: Sequence[RecordedEvent]


@dataclass(frozen=True, slots=True, kw_only=True)
class ListEvents:
    """The events of a job behind one of them, in order. Raises `NotFound`."""

    history: JobHistory
    progress: ProgressBus

    async def __call__(self, job_id: JobId, *, after: int, limit: int) -> Sequence[RecordedEvent]:
        events = await self.progress.since(job_id, after, limit=limit)
        if not events:
            await self.history.get(job_id)
        return events


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchJob:
    """Tells what there is of a job behind the event `after`, and then what is new, until the job has ended.

    Listens first and reads then, so that nothing falls between; the last news is that of the ended job.

    Raises:
        NotFound: there is no such job, or not any more.
        StorageUnavailable: to be watched again, behind the last event that was told.
    """

    history: JobHistory
    progress: ProgressBus

    async def __call__(self, job_id: JobId, *, after: int) -> AsyncGenerator[JobNews, None]:
        known: JobView | None = None
        async with self.progress.changes(job_id) as bell:
            while True:
                # read before its events: those of an ended job are all there
                job = await self.history.get(job_id)
                events = await self.progress.since(job_id, after) if after < job.event_count else ()
                if events or job != known:
                    yield JobNews(job=job, events=events)
                known = job
                if events:
                    after = events[-1].number
                if events and after < job.event_count:
                    continue
                if job.state in FINAL:
                    return
                await bell.wait(LOOK_AGAIN_SECONDS)
