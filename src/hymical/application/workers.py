"""Who is at work."""

from collections.abc import Sequence
from dataclasses import dataclass

from hymical.domain.ids import WorkerId
from hymical.ports.workers import WorkerPresence, WorkerRegistry, WorkerView


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportPresence:
    registry: WorkerRegistry

    async def __call__(self, presence: WorkerPresence) -> None:
        await self.registry.report(presence)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveWork:
    registry: WorkerRegistry

    async def __call__(self, worker_id: WorkerId) -> None:
        await self.registry.leave(worker_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListWorkers:
    """The last to start first."""

    registry: WorkerRegistry

    async def __call__(self) -> Sequence[WorkerView]:
        return await self.registry.all()
