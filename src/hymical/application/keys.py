"""Keys to the management API."""

from collections.abc import Sequence
from dataclasses import dataclass

from hymical.domain.errors import Unauthorized
from hymical.domain.ids import KeyId
from hymical.domain.keys import Key, NewKey, is_key_text, key_digest, new_key_text
from hymical.domain.signing import Secret
from hymical.ports.ids import Ids
from hymical.ports.keys import KeyRepository


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateKey:
    """Makes a key; its text is given out here and never again. Raises `InvalidValue` for an unusable name."""

    keys: KeyRepository
    ids: Ids

    async def __call__(self, name: str) -> tuple[Key, Secret]:
        text = new_key_text(self.ids.secret_bytes())
        return await self.keys.add(NewKey(id=self.ids.key(), name=name, digest=key_digest(text))), text


@dataclass(frozen=True, slots=True, kw_only=True)
class ListKeys:
    keys: KeyRepository

    async def __call__(self) -> Sequence[Key]:
        return await self.keys.all()


@dataclass(frozen=True, slots=True, kw_only=True)
class RevokeKey:
    """Ends a key at once; may be repeated. Raises `NotFound`."""

    keys: KeyRepository

    async def __call__(self, key_id: KeyId) -> Key:
        return await self.keys.revoke(key_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Authenticate:
    """Whose key this is. Raises `Unauthorized`, the same for a malformed, an unknown and a revoked one."""

    keys: KeyRepository

    async def __call__(self, presented: Secret) -> Key:
        if not is_key_text(presented.reveal()):
            raise Unauthorized
        key = await self.keys.find(key_digest(presented))
        if key is None or key.revoked_at is not None:
            raise Unauthorized
        return key
