"""Rate limits in memory."""

from collections.abc import Sequence

from hymical.adapters.memory.store import MemoryStore
from hymical.domain.limits import Standing, spend, standing
from hymical.ports.clock import Clock
from hymical.ports.limits import Asked, Bucket, Decision


class MemoryRateLimiter:
    def __init__(self, store: MemoryStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def spend(self, asked: Sequence[Asked]) -> Sequence[Decision]:
        now = self._clock.now()
        self._store.rows.buckets = {key: tat for key, tat in self._store.rows.buckets.items() if tat > now}
        return [self._decision(one) for one in asked]

    def _decision(self, asked: Asked) -> Decision:
        source = self._spend(asked.source)
        if source is not None and not source.allowed:
            return Decision(source=source)
        return Decision(source=source, form=self._spend(asked.form))

    def _spend(self, bucket: Bucket | None) -> Standing | None:
        if bucket is None:
            return None
        now, buckets = self._clock.now(), self._store.rows.buckets
        allowed, tat = spend(buckets.get(bucket.key), now, bucket.limit, 1)
        buckets[bucket.key] = tat
        return standing(tat, now, bucket.limit, allowed=allowed == 1)
