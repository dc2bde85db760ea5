"""Transactions and wake-ups within one process."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from hymical.adapters.memory.store import MemoryStore


class MemoryTransactions:
    """The port `Transactions`."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    def begin(self) -> AbstractAsyncContextManager[None]:
        return self._store.begin()


class MemoryBell:
    """The port `Bell`."""

    def __init__(self, rung: asyncio.Event) -> None:
        self._rung = rung

    async def wait(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self._rung.wait()
        except TimeoutError:
            return False
        self._rung.clear()
        return True


class MemoryWakeUps:
    """The port `WakeUps`."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    @asynccontextmanager
    async def deliveries(self) -> AsyncIterator[MemoryBell]:
        rung = asyncio.Event()
        self._store.bells.add(rung)
        try:
            yield MemoryBell(rung)
        finally:
            self._store.bells.discard(rung)
