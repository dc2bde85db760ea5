"""What every process does beside its work: looking whether the others are there."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from hymical.domain.errors import StorageUnavailable

_log = logging.getLogger(__name__)
_EVERY_SECONDS = 30.0


@asynccontextmanager
async def watching(watch_over: Callable[[], Awaitable[None]]) -> AsyncIterator[None]:
    """Looks every half a minute, for as long as the block is open."""

    async def looking() -> None:
        while True:
            # first the wait: whatever starts now starts others too
            await asyncio.sleep(_EVERY_SECONDS)
            try:
                await watch_over()
            except StorageUnavailable:
                # whoever works here has said so
                continue
            except Exception:  # noqa: BLE001  a fault here must not end what this process is for
                _log.exception("looking after the other processes failed")

    task = asyncio.create_task(looking())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
