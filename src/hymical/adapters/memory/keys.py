"""Keys in memory."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

from hymical.adapters.memory.store import MemoryStore
from hymical.domain.errors import NotFound
from hymical.domain.ids import KeyId
from hymical.domain.keys import Key, NewKey, already_expired, expiry_warning
from hymical.ports.clock import Clock
from hymical.ports.keys import ExpiringKeys, FoundKey


class MemoryKeyRepository:
    def __init__(self, store: MemoryStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def add(self, key: NewKey) -> Key:
        now = self._clock.now()
        expires_at = now + key.expires if isinstance(key.expires, timedelta) else key.expires
        if expires_at is not None and expires_at <= now:
            raise already_expired()
        stored = Key(id=key.id, name=key.name, created_at=now, expires_at=expires_at)
        self._store.rows.keys[key.id] = stored
        self._store.rows.key_digests[key.digest] = key.id
        return stored

    async def find(self, digest: bytes) -> FoundKey | None:
        key_id = self._store.rows.key_digests.get(digest)
        if key_id is None:
            return None
        return FoundKey(key=self._store.rows.keys[key_id], now=self._clock.now())

    async def page(self, *, after: str | None, limit: int | None) -> Sequence[Key]:
        return [
            key for key_id, key in sorted(self._store.rows.keys.items()) if after is None or key_id > after
        ][:limit]

    async def revoke(self, key_id: KeyId) -> Key:
        key = self._store.rows.keys.get(key_id)
        if key is None:
            raise NotFound("key", key_id)
        revoked = replace(key, revoked_at=key.revoked_at or self._clock.now())
        self._store.rows.keys[key_id] = revoked
        return revoked


class MemoryKeyWarnings:
    def __init__(self, store: MemoryStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def take(self) -> ExpiringKeys:
        rows, now = self._store.rows, self._clock.now()
        due: list[Key] = []
        for key_id, key in sorted(rows.keys.items()):
            days = expiry_warning(key, rows.key_warnings.get(key_id), now)
            if days is not None:
                rows.key_warnings[key_id] = days
                due.append(key)
        return ExpiringKeys(keys=due, now=now)
