"""Transactions and wake-ups within one process."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from hymical.adapters.memory.store import MemoryStore
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

    @asynccontextmanager
    async def deliveries(self) -> AsyncIterator[Bell]:
        bell = Bell()
        self._store.bells.add(bell)
        try:
            yield bell
        finally:
            self._store.bells.discard(bell)
