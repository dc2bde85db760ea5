"""LISTEN, on a connection of its own."""

import asyncio
import contextlib
import logging
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import NoReturn

import psycopg

_log = logging.getLogger(__name__)
_LONGEST_PAUSE = 10.0
_PROBE_SECONDS = 30.0


@asynccontextmanager
async def listening(
    database_url: str, channel: str, hear: Callable[[str | None], None]
) -> AsyncIterator[asyncio.Event]:
    """Calls `hear` with the payload of each notification, for as long as the block is open.

    None is heard whenever notifications may have been missed: once LISTEN is in force, and again after each
    loss of the connection, which is made anew with growing, jittered pauses. The event is set once LISTEN is in
    force, or was tried in vain.
    """
    tried = asyncio.Event()
    task = asyncio.create_task(_listen(database_url, channel, hear, tried))
    try:
        yield tried
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def _listen(
    database_url: str, channel: str, hear: Callable[[str | None], None], tried: asyncio.Event
) -> NoReturn:
    pause, lost = 0.1, False
    while True:
        try:
            async with await psycopg.AsyncConnection.connect(
                database_url, autocommit=True, connect_timeout=5, application_name="hymical listen"
            ) as connection:
                await connection.execute(f"LISTEN {channel}".encode())
                if lost:
                    _log.info("wake-ups are back: %s", channel)
                pause, lost = 0.1, False
                tried.set()
                # whatever happened while nobody listened has notified nobody
                hear(None)
                while True:
                    async for notification in connection.notifies(timeout=_PROBE_SECONDS):
                        hear(notification.payload)
                    # a connection that died silently shows itself only when it is used
                    await connection.execute(b"SELECT 1")
        except (psycopg.Error, OSError) as error:
            tried.set()
            if not lost:
                _log.warning(
                    "wake-ups are lost, news is found by polling: %s, %s", channel, type(error).__name__
                )
            lost = True
            await asyncio.sleep(random.uniform(0, pause))  # noqa: S311
            pause = min(pause * 2, _LONGEST_PAUSE)
