"""Keys in PostgreSQL."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from sqlalchemy import DateTime, func, literal, select, update

from hymical.adapters.postgres.errors import translated
from hymical.adapters.postgres.tables import keys
from hymical.adapters.postgres.transactions import PostgresTransactions
from hymical.domain.errors import NotFound
from hymical.domain.ids import KeyId
from hymical.domain.keys import WARNED_BEFORE, Key, NewKey, already_expired
from hymical.ports.clock import Clock
from hymical.ports.keys import ExpiringKeys, FoundKey

_shown = (keys.c.id, keys.c.name, keys.c.created_at, keys.c.expires_at, keys.c.revoked_at)


class PostgresKeyRepository:
    def __init__(self, transactions: PostgresTransactions, clock: Clock) -> None:
        self._transactions = transactions
        self._clock = clock

    async def add(self, key: NewKey) -> Key:
        after = key.expires if isinstance(key.expires, timedelta) else None
        parameters = {
            "now": self._clock.pinned(),
            "id": key.id,
            "name": key.name,
            "digest": key.digest,
            "expires_after": after,
            "expires_at": None if after is not None else key.expires,
        }
        too_late = {"keys_expires_later": already_expired()}
        (row,) = await self._transactions.run("add_key", parameters, constraints=too_late)
        return _key(row._asdict())

    async def find(self, digest: bytes) -> FoundKey | None:
        now = func.coalesce(literal(self._clock.pinned(), DateTime(timezone=True)), func.clock_timestamp())
        query = select(keys, now.label("now")).where(keys.c.digest == digest)
        with translated():
            async with self._transactions.connection() as connection:
                row = (await connection.execute(query)).mappings().one_or_none()
        return None if row is None else FoundKey(key=_key(row), now=row["now"])

    async def page(self, *, after: str | None, limit: int | None) -> Sequence[Key]:
        query = select(*_shown).order_by(keys.c.id).limit(limit)
        if after is not None:
            query = query.where(keys.c.id > after)
        with translated():
            async with self._transactions.connection() as connection:
                return [_key(row) for row in (await connection.execute(query)).mappings()]

    async def revoke(self, key_id: KeyId) -> Key:
        revoked_at = func.coalesce(keys.c.revoked_at, self._clock.pinned() or func.clock_timestamp())
        command = update(keys).where(keys.c.id == key_id).values(revoked_at=revoked_at).returning(*_shown)
        with translated():
            async with self._transactions.connection() as connection:
                row = (await connection.execute(command)).mappings().one_or_none()
        if row is None:
            raise NotFound("key", key_id)
        return _key(row)


class PostgresKeyWarnings:
    def __init__(self, transactions: PostgresTransactions, clock: Clock) -> None:
        self._transactions = transactions
        self._clock = clock

    async def take(self) -> ExpiringKeys:
        parameters = {"now": self._clock.pinned(), "days": list(WARNED_BEFORE)}
        rows = await self._transactions.run("take_key_warnings", parameters)
        return ExpiringKeys(keys=[_key(row._asdict()) for row in rows if row.id is not None], now=rows[0].now)


def _key(row: Mapping[Any, Any]) -> Key:
    return Key(**{name: row[name] for name in ("id", "name", "created_at", "expires_at", "revoked_at")})
