"""Where keys are kept."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from hymical.domain.ids import KeyId
from hymical.domain.keys import Key, NewKey


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundKey:
    """A key, and the database's time, which decides whether it has expired."""

    key: Key
    now: datetime


class KeyRepository(Protocol):
    async def add(self, key: NewKey) -> Key:
        """Raises `InvalidValue` for one that would have expired already."""
        ...

    async def find(self, digest: bytes) -> FoundKey | None:
        """The key with this digest, revoked, expired or not."""
        ...

    async def page(self, *, after: str | None, limit: int | None) -> Sequence[Key]:
        """The oldest first, those behind the one with the id `after`, at most `limit`."""
        ...

    async def revoke(self, key_id: KeyId) -> Key:
        """A revoked key stays revoked, with its first time. Raises `NotFound`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpiringKeys:
    """Keys whose owner is to be told that they expire, by id; `now` is the database's time."""

    keys: Sequence[Key]
    now: datetime


class KeyWarnings(Protocol):
    async def take(self) -> ExpiringKeys:
        """What `expiry_warning` says is to be told of now; it is not given again."""
        ...
