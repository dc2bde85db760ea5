"""What tests of loops wait by, instead of for time to pass."""

import asyncio
from collections.abc import Callable

from hymical.adapters.system.ids import SystemIds

PATIENCE = 5


class SteadyIds(SystemIds):
    """Whose dice keep pauses short."""

    def dice(self) -> float:
        return 0.0


class Signal:
    """Lets a test wait for what it wants to see, instead of for time to pass."""

    def __init__(self) -> None:
        self._changed = asyncio.Condition()

    async def tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def when(self, wanted: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE), self._changed:
            await self._changed.wait_for(wanted)
