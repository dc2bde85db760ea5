"""Transactions and wake-ups within one process."""

from collections.abc import Collection
from contextlib import AbstractAsyncContextManager

from hymical.adapters.memory.store import DELIVERIES, MemoryStore, jobs_of
from hymical.ports.wakeups import Bell


class MemoryTransactions:
    """The port `Transactions`."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    def begin(self) -> AbstractAsyncContextManager[None]:
        return self._store.begin()


class MemoryWakeUps:
    """The port `WakeUps`."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    def deliveries(self) -> AbstractAsyncContextManager[Bell]:
        return self._store.listen([DELIVERIES])

    def jobs(self, queues: Collection[str]) -> AbstractAsyncContextManager[Bell]:
        return self._store.listen([jobs_of(queue) for queue in queues])
