"""The presence of workers in memory."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import timedelta

from hymical.adapters.memory.store import MemoryStore
from hymical.domain.ids import WorkerId
from hymical.ports.clock import Clock
from hymical.ports.workers import LIVE_WITHIN, WorkerPresence, WorkerView


class MemoryWorkerRegistry:
    def __init__(self, store: MemoryStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def report(self, presence: WorkerPresence) -> None:
        now, workers = self._clock.now(), self._store.rows.workers
        known = workers.get(presence.id)
        self._store.rows.workers = {
            worker_id: view
            for worker_id, view in workers.items()
            if view.last_seen_at >= now - timedelta(hours=1)
        }
        self._store.rows.workers[presence.id] = WorkerView(
            **asdict(presence), started_at=known.started_at if known else now, last_seen_at=now, live=True
        )

    async def leave(self, worker_id: WorkerId) -> None:
        self._store.rows.workers.pop(worker_id, None)

    async def all(self) -> Sequence[WorkerView]:
        live_since = self._clock.now() - LIVE_WITHIN
        found = sorted(
            self._store.rows.workers.values(), key=lambda view: (view.started_at, view.id), reverse=True
        )
        return [replace(view, live=view.last_seen_at >= live_since) for view in found]
