"""Who is at work."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Protocol

from hymical.domain.ids import WorkerId

LIVE_WITHIN = timedelta(seconds=30)
"""A worker that was not seen for longer is taken for dead or cut off."""


class WorkerKind(StrEnum):
    """A scheduler reports as a worker does, and has nothing in flight."""

    WORKER = "worker"
    SCHEDULER = "scheduler"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerPresence:
    """What a worker says of itself. `queues` are those it drains; none: it delivers webhooks."""

    id: WorkerId
    host: str
    pid: int
    version: str
    kind: WorkerKind = WorkerKind.WORKER
    in_flight: int
    queues: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerView:
    """A worker as people read it; times are the database's. `live` is whether it was seen lately."""

    id: WorkerId
    host: str
    pid: int
    version: str
    kind: WorkerKind = WorkerKind.WORKER
    in_flight: int
    started_at: datetime
    last_seen_at: datetime
    live: bool
    queues: Sequence[str] = ()


class WorkerRegistry(Protocol):
    async def report(self, presence: WorkerPresence) -> None:
        """Says that a worker is there; those not seen for an hour are forgotten."""
        ...

    async def leave(self, worker_id: WorkerId) -> None: ...

    async def all(self) -> Sequence[WorkerView]:
        """The last to start first."""
        ...
