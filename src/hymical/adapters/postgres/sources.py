"""The key of sources in PostgreSQL."""

from sqlalchemy import select

from hymical.adapters.postgres.errors import translated
from hymical.adapters.postgres.tables import installation
from hymical.adapters.postgres.transactions import PostgresTransactions


class PostgresSourceKey:
    """Reads it once: the migration makes it, and nothing changes it."""

    def __init__(self, transactions: PostgresTransactions) -> None:
        self._transactions = transactions
        self._key: bytes | None = None

    async def read(self) -> bytes:
        if self._key is None:
            with translated():
                async with self._transactions.connection() as connection:
                    found = await connection.execute(select(installation.c.source_key))
                    self._key = bytes(found.scalar_one())
        return self._key
