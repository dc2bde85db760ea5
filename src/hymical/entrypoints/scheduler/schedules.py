"""The loop that evaluates schedules."""

import asyncio
import contextlib
import logging
from datetime import timedelta

from hymical.application.schedules import EvaluateSchedules
from hymical.domain.errors import StorageUnavailable
from hymical.ports.ids import Ids

_log = logging.getLogger(__name__)
_LONGEST_WAIT = timedelta(seconds=30)
# a wait that ends a little early would look once for nothing
_JUST_BEHIND = timedelta(milliseconds=1)
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.1, 10.0


class Scheduler:
    """Evaluates all schedules, and waits for the next tick by the database's clock.

    It waits for half a minute at the longest, so that a clock that jumps is noticed.
    """

    def __init__(self, evaluate: EvaluateSchedules, ids: Ids) -> None:
        self._evaluate = evaluate
        self._ids = ids
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """`run` returns at once: a pass that is under way is broken off, and has enqueued nothing."""
        self._stopping.set()

    async def run(self) -> None:
        evaluating = asyncio.create_task(self._evaluate_for_ever())
        stopping = asyncio.create_task(self._stopping.wait())
        await asyncio.wait({evaluating, stopping}, return_when=asyncio.FIRST_COMPLETED)
        for task in (evaluating, stopping):
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await evaluating

    async def _evaluate_for_ever(self) -> None:
        pause, away = _SHORTEST_PAUSE, False
        while True:
            try:
                next_due = (await self._evaluate()).next_due
            except StorageUnavailable as error:
                if not away:
                    _log.warning("the database is away, schedules wait (%s)", error)
                away = True
                await asyncio.sleep(pause * (0.5 + self._ids.dice()))
                pause = min(pause * 2, _LONGEST_PAUSE)
                continue
            if away:
                _log.info("the database is back")
            pause, away = _SHORTEST_PAUSE, False
            wait = _LONGEST_WAIT if next_due is None else min(next_due + _JUST_BEHIND, _LONGEST_WAIT)
            await asyncio.sleep(wait.total_seconds())
