"""What memory says about itself."""

from collections.abc import Sequence
from datetime import datetime

from hymical.ports.clock import Clock


class MemoryInspection:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    async def now(self) -> datetime:
        return self._clock.now()

    async def missing_rights(self) -> Sequence[str]:
        return []
