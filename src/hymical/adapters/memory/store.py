"""What the memory adapters share: the rows, and one transaction at a time over all of them."""

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime

from hymical.domain.alerts import Alert
from hymical.domain.deliveries import Attempt, Delivery
from hymical.domain.destinations import Destination, Trouble
from hymical.domain.forms import Form, Submission
from hymical.domain.ids import (
    DeliveryId,
    DestinationId,
    FormId,
    JobId,
    KeyId,
    LeaseToken,
    MessageId,
    SubmissionId,
    WorkerId,
)
from hymical.domain.jobs import JobState, Json
from hymical.domain.keys import Key
from hymical.domain.leases import JobLease
from hymical.domain.messages import Message
from hymical.domain.progress import RecordedEvent
from hymical.ports.exports import WalkPlace, Withdrawal
from hymical.ports.jobs import JobView
from hymical.ports.schedules import Standing, Tick
from hymical.ports.wakeups import Bell
from hymical.ports.workers import WorkerView

Topic = tuple[str, str]
"""What a bell is rung for: a kind of news, and whom it concerns."""

DELIVERIES: Topic = ("deliveries", "")


def jobs_of(queue: str) -> Topic:
    return ("jobs", queue)


def events_of(job_id: JobId) -> Topic:
    return ("job events", job_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredJob:
    """A job as people read it, and what only its holders are told.

    `token` stays when the claim ends; `answered_early` are the keys that were answered before they were asked.
    """

    view: JobView
    claim_count: int = 0
    lost_in_a_row: int = 0
    checkpoint: Json | None = None
    token: LeaseToken | None = None
    leased_until: datetime | None = None
    answered_early: frozenset[str] = frozenset()

    def held_by(self, lease: JobLease) -> bool:
        return self.view.state is JobState.PROCESSING and self.token == lease.token


@dataclass(frozen=True, slots=True, kw_only=True)
class NotedAlert:
    since: datetime
    raised: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFile:
    """An export's file; `reached` is the last submission in it."""

    form_id: FormId
    received_after: datetime | None
    expires_at: datetime
    pieces: tuple[bytes, ...] = ()
    reached: WalkPlace | None = None
    complete: bool = False
    withdrawn: Withdrawal | None = None


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
    key_warnings: dict[KeyId, int] = field(default_factory=dict)
    buckets: dict[bytes, datetime] = field(default_factory=dict)
    jobs: dict[JobId, StoredJob] = field(default_factory=dict)
    job_events: dict[JobId, tuple[RecordedEvent, ...]] = field(default_factory=dict)
    paused_queues: dict[str, datetime] = field(default_factory=dict)
    schedules: dict[str, Standing] = field(default_factory=dict)
    ticks: dict[tuple[str, datetime], Tick] = field(default_factory=dict)
    alerts: dict[Alert, NotedAlert] = field(default_factory=dict)
    exports: dict[JobId, StoredFile] = field(default_factory=dict)

    def copy(self) -> "Rows":
        return Rows(**{name: dict(getattr(self, name)) for name in self.__slots__})


class MemoryStore:
    """Holds the rows and the bells. `rows` is what the running task may see and change."""

    def __init__(self) -> None:
        self.rows = Rows()
        self._bells: dict[Bell, frozenset[Topic]] = {}
        self._turn = asyncio.Lock()
        self._open: ContextVar[set[Topic] | None] = ContextVar("open_transaction", default=None)

    @asynccontextmanager
    async def begin(self) -> AsyncIterator[None]:
        if self._open.get() is not None:
            raise RuntimeError("a transaction is open in this task already")
        async with self._turn:
            before, rung = self.rows.copy(), set[Topic]()
            token = self._open.set(rung)
            try:
                yield
            except BaseException:
                self.rows = before
                raise
            finally:
                self._open.reset(token)
        self._ring(rung)

    @asynccontextmanager
    async def listen(self, topics: Collection[Topic]) -> AsyncIterator[Bell]:
        """A bell that rings for these, for as long as the block is open."""
        bell = Bell()
        self._bells[bell] = frozenset(topics)
        try:
            yield bell
        finally:
            del self._bells[bell]

    def ring(self, topic: Topic) -> None:
        """Rings the bells of whoever listens for it, at the commit when a transaction is open."""
        rung = self._open.get()
        if rung is None:
            self._ring({topic})
        else:
            rung.add(topic)

    def _ring(self, rung: Collection[Topic]) -> None:
        for bell, topics in self._bells.items():
            if not topics.isdisjoint(rung):
                bell.ring()
