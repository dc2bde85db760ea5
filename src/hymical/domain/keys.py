"""Keys to the management API: shown once, kept only as a digest."""

import base64
import hashlib
import re
from dataclasses import dataclass
from datetime import datetime

from hymical.domain.errors import InvalidValue
from hymical.domain.ids import KeyId
from hymical.domain.signing import Secret

_PREFIX = "hym_live_"
_KEY = re.compile(rf"{_PREFIX}[A-Za-z0-9_-]{{43}}", re.ASCII)
_LONGEST_NAME = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    id: KeyId
    name: str
    created_at: datetime
    revoked_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewKey:
    """A key that is asked for. Raises `InvalidValue` for a name that cannot be kept."""

    id: KeyId
    name: str
    digest: bytes

    def __post_init__(self) -> None:
        if not 1 <= len(self.name) <= _LONGEST_NAME or not self.name.isprintable():
            raise InvalidValue("name", f"must be 1 to {_LONGEST_NAME} printable characters")


def new_key_text(random: bytes) -> Secret:
    """`hym_live_` and 43 characters that stand for 32 random bytes."""
    return Secret(_PREFIX + base64.urlsafe_b64encode(random).decode().rstrip("="))


def is_key_text(text: str) -> bool:
    return _KEY.fullmatch(text) is not None


def key_digest(key: Secret) -> bytes:
    """SHA-256 of a key; it has 256 bits of entropy, so that a slow hash would add nothing."""
    return hashlib.sha256(key.reveal().encode()).digest()
