"""Wake-ups over LISTEN, on a connection of their own."""

import asyncio
import contextlib
import logging
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psycopg

from hymical.ports.wakeups import Bell

_log = logging.getLogger(__name__)
_LONGEST_PAUSE = 10.0
_PROBE_SECONDS = 30.0


class PostgresWakeUps:
    """The port `WakeUps`. A listener that loses its connection makes a new one, with growing, jittered pauses."""

    def __init__(self, database_url: str) -> None:
        self._database_url = database_url

    @asynccontextmanager
    async def deliveries(self) -> AsyncIterator[Bell]:
        bell = Bell()
        listening = asyncio.create_task(self._listen("hymical_deliveries", bell))
        try:
            yield bell
        finally:
            listening.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await listening

    async def _listen(self, channel: str, bell: Bell) -> None:
        pause, lost = 0.1, False
        while True:
            try:
                async with await psycopg.AsyncConnection.connect(
                    self._database_url, autocommit=True, connect_timeout=5, application_name="hymical listen"
                ) as connection:
                    await connection.execute(f"LISTEN {channel}".encode())
                    if lost:
                        _log.info("wake-ups are back")
                    pause, lost = 0.1, False
                    # whatever was stored while nobody listened has rung for nobody
                    bell.ring()
                    while True:
                        async for _ in connection.notifies(timeout=_PROBE_SECONDS, stop_after=1):
                            bell.ring()
                        # a connection that died silently shows itself only when it is used
                        await connection.execute(b"SELECT 1")
            except (psycopg.Error, OSError) as error:
                if not lost:
                    _log.warning(
                        "wake-ups are lost, deliveries are found by polling: %s", type(error).__name__
                    )
                lost = True
                await asyncio.sleep(random.uniform(0, pause))  # noqa: S311
                pause = min(pause * 2, _LONGEST_PAUSE)
