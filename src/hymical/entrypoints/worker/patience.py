"""Waiting as a worker does: for a database that is away, and never longer than until it has to stop."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from hymical.domain.errors import StorageUnavailable
from hymical.ports.ids import Ids

_log = logging.getLogger(__name__)
_Result = TypeVar("_Result")
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.1, 10.0


class Patience:
    """Of one worker."""

    def __init__(self, ids: Ids) -> None:
        self._ids = ids
        self._stopping = asyncio.Event()
        self._unreachable = False

    def is_over(self) -> bool:
        """Whether the worker has to stop."""
        return self._stopping.is_set()

    def end(self) -> None:
        self._stopping.set()

    async def until_any(self, *awaitables: Awaitable[object]) -> None:
        """Returns when one of them does, or when the worker has to stop."""
        waiting = {asyncio.ensure_future(one) for one in (*awaitables, self._stopping.wait())}
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waiting:
                one.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)

    async def persistently(
        self, call: Callable[[], Awaitable[_Result]], verb: str, *, until_stopped: bool = False
    ) -> _Result | None:
        """The result, once the database answers; pauses grow and are jittered. None when stopped first."""
        pause = _SHORTEST_PAUSE
        while True:
            try:
                result = await call()
            except StorageUnavailable as error:
                if not self._unreachable:
                    _log.warning("the database is away, trying on (%s: %s)", verb, error)
                self._unreachable = True
            else:
                if self._unreachable:
                    _log.info("the database is back")
                self._unreachable = False
                return result
            if until_stopped and self.is_over():
                return None
            wait = pause * (0.5 + self._ids.dice())
            if until_stopped:
                await self.until_any(asyncio.sleep(wait))
            else:
                await asyncio.sleep(wait)
            pause = min(pause * 2, _LONGEST_PAUSE)
