"""Removing history in PostgreSQL."""

from datetime import timedelta
from typing import Any

from hymical.adapters.postgres.transactions import PostgresTransactions
from hymical.domain.retention import Kind
from hymical.ports.clock import Clock
from hymical.ports.retention import SweptBatch


class PostgresHistorySweep:
    def __init__(self, transactions: PostgresTransactions, clock: Clock) -> None:
        self._transactions = transactions
        self._clock = clock

    async def sweep(self, kind: Kind, *, age: timedelta, behind: str, looks: int) -> SweptBatch:
        parameters = {"now": self._clock.pinned(), "age": age, "behind": behind, "looks": looks}
        if kind is Kind.SUBMISSIONS:
            return await self._sweep_submissions(parameters)
        (row,) = await self._transactions.run(f"sweep_{kind}", parameters)
        return SweptBatch(removed=row.removed, end=_end(row))

    async def _sweep_submissions(self, parameters: dict[str, Any]) -> SweptBatch:
        async with self._transactions.together():
            (row,) = await self._transactions.run("look_for_old_submissions", parameters)
            (swept,) = await self._transactions.run("sweep_submissions", {"ids": row.ids})
        return SweptBatch(removed=swept.removed, end=_end(row))


def _end(row: Any) -> str | None:  # noqa: ANN401  the columns of a sweep
    return str(row.last) if row.goes_on else None
