"""A nudge to those who wait for work."""

import asyncio
from collections.abc import Collection
from contextlib import AbstractAsyncContextManager
from typing import Protocol


class Bell:
    """Rung by whoever hears of work, and waited for by whoever does it."""

    def __init__(self) -> None:
        self._rung = asyncio.Event()

    def ring(self) -> None:
        self._rung.set()

    async def wait(self, seconds: float) -> bool:
        """Returns at the next ring, or at one since the last wait, or after that many seconds.

        True says that it rang. A ring may be lost: whoever waits looks again once they passed.
        """
        try:
            async with asyncio.timeout(seconds):
                await self._rung.wait()
        except TimeoutError:
            return False
        self._rung.clear()
        return True


class WakeUps(Protocol):
    def deliveries(self) -> AbstractAsyncContextManager[Bell]:
        """A bell that rings when deliveries were stored, anywhere, for as long as the block is open."""
        ...

    def jobs(self, queues: Collection[str]) -> AbstractAsyncContextManager[Bell]:
        """A bell that rings when jobs of these queues became due, or one of the queues was resumed, anywhere."""
        ...
