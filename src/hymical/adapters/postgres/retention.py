"""Removing history in PostgreSQL."""

from datetime import timedelta
from typing import Any

from sqlalchemy import Row

from hymical.adapters.postgres.errors import translated
from hymical.adapters.postgres.statements import statement
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
        with translated():
            async with self._transactions.connection() as connection:
                row = (await connection.execute(statement(f"sweep_{kind}"), parameters)).one()
        return SweptBatch(removed=row.removed, end=_end(row))

    async def _sweep_submissions(self, parameters: dict[str, Any]) -> SweptBatch:
        with translated():
            async with self._transactions.together() as connection:
                row = (await connection.execute(statement("look_for_old_submissions"), parameters)).one()
                removed = await connection.scalar(statement("sweep_submissions"), {"ids": row.ids})
        return SweptBatch(removed=removed or 0, end=_end(row))


def _end(row: Row[*tuple[Any, ...]]) -> str | None:
    return str(row.last) if row.goes_on else None
