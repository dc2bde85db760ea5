"""The presence of workers in PostgreSQL."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from sqlalchemy import delete

from hymical.adapters.postgres.errors import translated
from hymical.adapters.postgres.tables import workers
from hymical.adapters.postgres.transactions import PostgresTransactions
from hymical.domain.ids import WorkerId
from hymical.ports.clock import Clock
from hymical.ports.workers import LIVE_WITHIN, WorkerKind, WorkerPresence, WorkerView


class PostgresWorkerRegistry:
    def __init__(self, transactions: PostgresTransactions, clock: Clock) -> None:
        self._transactions = transactions
        self._clock = clock

    async def report(self, presence: WorkerPresence) -> None:
        parameters = {
            "now": self._clock.pinned(),
            "id": presence.id,
            "host": presence.host,
            "pid": presence.pid,
            "version": presence.version,
            "kind": presence.kind,
            "in_flight": presence.in_flight,
            "queues": list(presence.queues),
            "forgotten_after": timedelta(hours=1),
        }
        await self._transactions.run("report_worker", parameters)

    async def leave(self, worker_id: WorkerId) -> None:
        with translated():
            async with self._transactions.connection() as connection:
                await connection.execute(delete(workers).where(workers.c.id == worker_id))

    async def all(self) -> Sequence[WorkerView]:
        parameters = {"now": self._clock.pinned(), "live_within": LIVE_WITHIN}
        return [_view(row._asdict()) for row in await self._transactions.run("list_workers", parameters)]


def _view(row: Mapping[Any, Any]) -> WorkerView:
    return WorkerView(**{**row, "kind": WorkerKind(row["kind"]), "queues": tuple(row["queues"])})
