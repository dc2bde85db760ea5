"""Writing down what has ended: batches form while the last one is being written."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Generic, TypeVar

from hymical.entrypoints.worker.patience import Patience

_log = logging.getLogger(__name__)
_Ended = TypeVar("_Ended")
_Verdict = TypeVar("_Verdict")


class Settling(Generic[_Ended, _Verdict]):
    """Settles what is added to it, for as long as `open` is.

    `name` is what one is called in the log; `judged` is told each verdict, and `written` how many have been dealt
    with, after each batch.
    """

    def __init__(
        self,
        settle: Callable[[Sequence[_Ended]], Awaitable[Sequence[_Verdict]]],
        *,
        patience: Patience,
        name: Callable[[_Ended], str],
        judged: Callable[[_Ended, _Verdict], None],
        written: Callable[[Sequence[_Ended]], None],
    ) -> None:
        self._settle = settle
        self._patience = patience
        self._name = name
        self._judged = judged
        self._written = written
        self._ended: list[_Ended] = []
        self._something_ended = asyncio.Event()

    def add(self, ended: Sequence[_Ended]) -> None:
        if ended:
            self._ended += ended
            self._something_ended.set()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        settling = asyncio.create_task(self._settle_all())
        try:
            yield
        finally:
            settling.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await settling

    async def _settle_all(self) -> None:
        while True:
            await self._something_ended.wait()
            self._something_ended.clear()
            ended, self._ended = self._ended, []
            await self._settle_batch(ended)
            self._written(ended)

    async def _settle_batch(self, ended: Sequence[_Ended]) -> None:
        try:
            verdicts = await self._patience.persistently(lambda: self._settle(ended), "settle")
        except Exception:  # noqa: BLE001  what it is does not matter: it must not stop the worker
            if len(ended) == 1:
                _log.exception("%s cannot be settled; its lease will end", self._name(ended[0]))
                return
            # one that cannot be written must not hold up the others
            for one in ended:
                await self._settle_batch([one])
            return
        for one, verdict in zip(ended, verdicts or (), strict=True):
            self._judged(one, verdict)
