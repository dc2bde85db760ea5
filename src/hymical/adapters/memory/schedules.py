"""The ledger of schedules in memory."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import datetime

from hymical.adapters.memory.store import MemoryStore
from hymical.domain.ids import JobId
from hymical.ports.clock import Clock
from hymical.ports.schedules import KEPT_TICKS, Standing, Standings, Tick


class MemoryScheduleLedger:
    def __init__(self, store: MemoryStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def standings(self) -> Standings:
        return Standings(
            now=self._clock.now(),
            of={
                name: replace(
                    standing, last=max(self._ticks(name), key=lambda tick: tick.due_at, default=None)
                )
                for name, standing in self._store.rows.schedules.items()
            },
        )

    async def register(self, names: Collection[str]) -> None:
        now = self._clock.now()
        for name in names:
            known = self._store.rows.schedules.get(name, _beginning(now))
            self._store.rows.schedules[name] = replace(known, since=min(known.since, now))

    async def record(
        self, name: str, ticks: Mapping[datetime, JobId], *, through: datetime
    ) -> Collection[JobId]:
        standing = self._store.rows.schedules.get(name)
        if standing is None or standing.paused_at is not None:
            return set()
        recorded = {
            job_id
            for due_at, job_id in ticks.items()
            if due_at > standing.since and self._add(name, due_at, job_id)
        }
        self._store.rows.schedules[name] = replace(standing, since=max(standing.since, through))
        covered = sorted(tick.due_at for tick in self._ticks(name))[:-KEPT_TICKS]
        for due_at in covered:
            if due_at <= standing.since:
                del self._store.rows.ticks[name, due_at]
        return recorded

    async def record_by_hand(self, name: str, job_id: JobId) -> None:
        now = self._clock.now()
        self._store.rows.schedules.setdefault(name, _beginning(now))
        self._add(name, now, job_id)

    async def pause(self, name: str) -> None:
        now = self._clock.now()
        known = self._store.rows.schedules.get(name, _beginning(now))
        self._store.rows.schedules[name] = replace(known, paused_at=known.paused_at or now)

    async def resume(self, name: str) -> None:
        known = self._store.rows.schedules.get(name)
        if known is None or known.paused_at is not None:
            self._store.rows.schedules[name] = _beginning(self._clock.now())

    def _ticks(self, name: str) -> Collection[Tick]:
        return [tick for (of, _), tick in self._store.rows.ticks.items() if of == name]

    def _add(self, name: str, due_at: datetime, job_id: JobId) -> bool:
        if (name, due_at) in self._store.rows.ticks:
            return False
        self._store.rows.ticks[name, due_at] = Tick(
            due_at=due_at, job_id=job_id, enqueued_at=self._clock.now()
        )
        return True


def _beginning(now: datetime) -> Standing:
    return Standing(since=now, paused_at=None, last=None)
