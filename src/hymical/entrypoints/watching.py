"""What every process does beside its work: looking whether the others are there."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from hymical.application.alerts import WatchOver
from hymical.domain.errors import StorageUnavailable

_EVERY_SECONDS = 30.0


@asynccontextmanager
async def watching(watch_over: WatchOver) -> AsyncIterator[None]:
    """Looks every half a minute, for as long as the block is open."""

    async def looking() -> None:
        while True:
            # first the wait: whatever starts now starts others too
            await asyncio.sleep(_EVERY_SECONDS)
            with contextlib.suppress(StorageUnavailable):
                await watch_over()

    task = asyncio.create_task(looking())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
