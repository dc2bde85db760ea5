"""Where keys are kept."""

from collections.abc import Sequence
from typing import Protocol

from hymical.domain.ids import KeyId
from hymical.domain.keys import Key, NewKey


class KeyRepository(Protocol):
    async def add(self, key: NewKey) -> Key: ...

    async def find(self, digest: bytes) -> Key | None:
        """The key with this digest, revoked or not."""
        ...

    async def all(self) -> Sequence[Key]:
        """The oldest first."""
        ...

    async def revoke(self, key_id: KeyId) -> Key:
        """A revoked key stays revoked, with its first time. Raises `NotFound`."""
        ...
