"""What the memory adapters share: the rows, and one transaction at a time over all of them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime

from hymical.domain.deliveries import Attempt, Delivery
from hymical.domain.destinations import Destination, Trouble
from hymical.domain.forms import Form, Submission
from hymical.domain.ids import DeliveryId, DestinationId, FormId, KeyId, MessageId, SubmissionId, WorkerId
from hymical.domain.keys import Key
from hymical.domain.messages import Message
from hymical.ports.wakeups import Bell
from hymical.ports.workers import WorkerView


@dataclass(slots=True)
class Rows:
    forms: dict[FormId, Form] = field(default_factory=dict)
    destinations: dict[DestinationId, Destination] = field(default_factory=dict)
    deleted: dict[DestinationId, Destination] = field(default_factory=dict)
    trouble: dict[DestinationId, Trouble] = field(default_factory=dict)
    submissions: dict[SubmissionId, Submission] = field(default_factory=dict)
    messages: dict[MessageId, Message] = field(default_factory=dict)
    deliveries: dict[DeliveryId, Delivery] = field(default_factory=dict)
    attempts: dict[tuple[DeliveryId, int], Attempt] = field(default_factory=dict)
    workers: dict[WorkerId, WorkerView] = field(default_factory=dict)
    keys: dict[KeyId, Key] = field(default_factory=dict)
    key_digests: dict[bytes, KeyId] = field(default_factory=dict)
    buckets: dict[bytes, datetime] = field(default_factory=dict)

    def copy(self) -> "Rows":
        return Rows(**{name: dict(getattr(self, name)) for name in self.__slots__})


class MemoryStore:
    """Holds the rows and the bells. `rows` is what the running task may see and change."""

    def __init__(self) -> None:
        self.rows = Rows()
        self.bells: set[Bell] = set()
        self._turn = asyncio.Lock()
        self._open: ContextVar[list[None] | None] = ContextVar("open_transaction", default=None)

    @asynccontextmanager
    async def begin(self) -> AsyncIterator[None]:
        if self._open.get() is not None:
            raise RuntimeError("a transaction is open in this task already")
        async with self._turn:
            before, rings = self.rows.copy(), list[None]()
            token = self._open.set(rings)
            try:
                yield
            except BaseException:
                self.rows = before
                raise
            finally:
                self._open.reset(token)
        if rings:
            self._ring_all()

    def ring(self) -> None:
        """Rings every bell, at the commit when a transaction is open."""
        rings = self._open.get()
        if rings is None:
            self._ring_all()
        else:
            rings.append(None)

    def _ring_all(self) -> None:
        for bell in self.bells:
            bell.ring()
