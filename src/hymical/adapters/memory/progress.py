"""The progress of jobs in memory."""

import json
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from datetime import datetime

from hymical.adapters.memory.store import MemoryStore, events_of
from hymical.domain.errors import JobLost
from hymical.domain.ids import JobId
from hymical.domain.jobs import Json
from hymical.domain.leases import JobLease
from hymical.domain.progress import ProgressEvent, RecordedEvent
from hymical.ports.clock import Clock
from hymical.ports.progress import PAGE
from hymical.ports.wakeups import Bell


class MemoryProgressBus:
    def __init__(self, store: MemoryStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def publish(self, lease: JobLease, events: Sequence[ProgressEvent]) -> None:
        stored = self._store.rows.jobs.get(lease.job_id)
        if stored is None or not stored.held_by(lease):
            raise JobLost(lease.job_id)
        record(self._store, lease.job_id, events, self._clock.now())

    async def since(self, job_id: JobId, number: int, *, limit: int = PAGE) -> Sequence[RecordedEvent]:
        if job_id not in self._store.rows.jobs:
            return []
        return self._store.rows.job_events.get(job_id, ())[max(number, 0) :][:limit]

    def changes(self, job_id: JobId) -> AbstractAsyncContextManager[Bell]:
        return self._store.listen([events_of(job_id)])


def record(store: MemoryStore, job_id: JobId, events: Sequence[ProgressEvent], now: datetime) -> None:
    """Numbers events behind those of their job, and rings for them."""
    if not events:
        return
    rows = store.rows
    before = rows.job_events.get(job_id, ())
    kept = [replace(event, message=as_stored(event.message)) for event in events]
    rows.job_events[job_id] = (
        *before,
        *(
            RecordedEvent(number=number, at=now, event=event)
            for number, event in enumerate(kept, len(before) + 1)
        ),
    )
    stored = rows.jobs[job_id]
    rows.jobs[job_id] = replace(
        stored, view=replace(stored.view, progress=kept[-1], event_count=len(before) + len(kept))
    )
    store.ring(events_of(job_id))


def as_stored(value: Json | None) -> Json | None:
    """A copy, as JSON gives it back: whoever changes what they handed in does not change what is kept."""
    kept: Json | None = json.loads(json.dumps(value, allow_nan=False))
    return kept
