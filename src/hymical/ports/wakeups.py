"""A nudge to those who wait for work."""

from contextlib import AbstractAsyncContextManager
from typing import Protocol


class Bell(Protocol):
    async def wait(self, seconds: float) -> bool:
        """Returns at the next ring, or at one since the last wait, or after that many seconds.

        True says that it rang. A ring may be lost: whoever waits looks again once they passed.
        """
        ...


class WakeUps(Protocol):
    def deliveries(self) -> AbstractAsyncContextManager[Bell]:
        """A bell that rings when deliveries were stored, anywhere, for as long as the block is open."""
        ...
