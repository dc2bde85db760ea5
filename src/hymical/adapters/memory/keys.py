"""Keys in memory."""

from collections.abc import Sequence
from dataclasses import replace

from hymical.adapters.memory.store import MemoryStore
from hymical.domain.errors import NotFound
from hymical.domain.ids import KeyId
from hymical.domain.keys import Key, NewKey
from hymical.ports.clock import Clock


class MemoryKeyRepository:
    def __init__(self, store: MemoryStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def add(self, key: NewKey) -> Key:
        stored = Key(id=key.id, name=key.name, created_at=self._clock.now(), revoked_at=None)
        self._store.rows.keys[key.id] = stored
        self._store.rows.key_digests[key.digest] = key.id
        return stored

    async def find(self, digest: bytes) -> Key | None:
        key_id = self._store.rows.key_digests.get(digest)
        return None if key_id is None else self._store.rows.keys[key_id]

    async def all(self) -> Sequence[Key]:
        return [key for _, key in sorted(self._store.rows.keys.items())]

    async def revoke(self, key_id: KeyId) -> Key:
        key = self._store.rows.keys.get(key_id)
        if key is None:
            raise NotFound("key", key_id)
        revoked = replace(key, revoked_at=key.revoked_at or self._clock.now())
        self._store.rows.keys[key_id] = revoked
        return revoked
