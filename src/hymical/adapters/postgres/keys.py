"""Keys in PostgreSQL."""

from collections.abc import Sequence

from sqlalchemy import Row, func, insert, select, update

from hymical.adapters.postgres.errors import translated
from hymical.adapters.postgres.tables import keys
from hymical.adapters.postgres.transactions import PostgresTransactions
from hymical.domain.errors import NotFound
from hymical.domain.ids import KeyId
from hymical.domain.keys import Key, NewKey
from hymical.ports.clock import Clock

_shown = (keys.c.id, keys.c.name, keys.c.created_at, keys.c.revoked_at)


class PostgresKeyRepository:
    def __init__(self, transactions: PostgresTransactions, clock: Clock) -> None:
        self._transactions = transactions
        self._clock = clock

    async def add(self, key: NewKey) -> Key:
        values = {
            "id": key.id,
            "name": key.name,
            "digest": key.digest,
            "created_at": self._clock.pinned() or func.clock_timestamp(),
        }
        with translated():
            async with self._transactions.connection() as connection:
                return _key((await connection.execute(insert(keys).values(values).returning(*_shown))).one())

    async def find(self, digest: bytes) -> Key | None:
        query = select(*_shown).where(keys.c.digest == digest)
        with translated():
            async with self._transactions.connection() as connection:
                row = (await connection.execute(query)).one_or_none()
        return None if row is None else _key(row)

    async def all(self) -> Sequence[Key]:
        with translated():
            async with self._transactions.connection() as connection:
                return [_key(row) for row in await connection.execute(select(*_shown).order_by(keys.c.id))]

    async def revoke(self, key_id: KeyId) -> Key:
        revoked_at = func.coalesce(keys.c.revoked_at, self._clock.pinned() or func.clock_timestamp())
        command = update(keys).where(keys.c.id == key_id).values(revoked_at=revoked_at).returning(*_shown)
        with translated():
            async with self._transactions.connection() as connection:
                row = (await connection.execute(command)).one_or_none()
        if row is None:
            raise NotFound("key", key_id)
        return _key(row)


def _key(row: Row[*tuple[object, ...]]) -> Key:
    return Key(**row._mapping)  # noqa: SLF001
