"""What PostgreSQL says about itself."""

from collections.abc import Sequence
from datetime import datetime

from hymical.adapters.postgres.tables import metadata
from hymical.adapters.postgres.transactions import PostgresTransactions
from hymical.ports.clock import Clock


class PostgresInspection:
    def __init__(self, transactions: PostgresTransactions, clock: Clock) -> None:
        self._transactions = transactions
        self._clock = clock

    async def now(self) -> datetime:
        (row,) = await self._transactions.run("tell_time", {"now": self._clock.pinned()})
        now: datetime = row.now
        return now

    async def missing_rights(self) -> Sequence[str]:
        names = [table.name for table in metadata.sorted_tables]
        return [row.missing for row in await self._transactions.run("missing_rights", {"tables": names})]
