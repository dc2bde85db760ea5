"""Keys to the management API: shown once, kept only as a digest, and ended when their time is up."""

import base64
import hashlib
import re
from dataclasses import dataclass
from datetime import datetime, timedelta

from hymical.domain.errors import InvalidValue
from hymical.domain.ids import KeyId
from hymical.domain.signing import Secret

_PREFIX = "hym_live_"
_KEY = re.compile(rf"{_PREFIX}[A-Za-z0-9_-]{{43}}", re.ASCII)
_LONGEST_NAME = 200

WARNED_BEFORE = (14, 7, 3, 1)
"""How many days before a key expires its owner is told so, each once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    id: KeyId
    name: str
    created_at: datetime
    expires_at: datetime | None = None
    revoked_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewKey:
    """A key that is asked for. `expires` is an instant, or how long after it was made; None is never.

    Raises:
        InvalidValue: the name cannot be kept.
    """

    id: KeyId
    name: str
    digest: bytes
    expires: datetime | timedelta | None = None

    def __post_init__(self) -> None:
        if not 1 <= len(self.name) <= _LONGEST_NAME or not self.name.isprintable():
            raise InvalidValue("name", f"must be 1 to {_LONGEST_NAME} printable characters")


def already_expired() -> InvalidValue:
    return InvalidValue("expires_at", "must lie in the future")


def opens(key: Key, now: datetime) -> bool:
    """Whether a key is of use: neither revoked nor expired."""
    return key.revoked_at is None and (key.expires_at is None or now < key.expires_at)


def expiry_warning(key: Key, warned: int | None, now: datetime) -> int | None:
    """Which of the days in `WARNED_BEFORE` is to be told of now; `warned` is the last that was.

    Of several that have come since, only the last is told, even when the key has expired by then. Those that are not
    shorter than the key's whole life are none of it. None when there is nothing to tell.
    """
    if key.expires_at is None or key.revoked_at is not None:
        return None
    passed = [
        days
        for days in WARNED_BEFORE
        if key.created_at < key.expires_at - timedelta(days=days) <= now and (warned is None or days < warned)
    ]
    return min(passed, default=None)


def new_key_text(random: bytes) -> Secret:
    """`hym_live_` and 43 characters that stand for 32 random bytes."""
    return Secret(_PREFIX + base64.urlsafe_b64encode(random).decode().rstrip("="))


def is_key_text(text: str) -> bool:
    return _KEY.fullmatch(text) is not None


def key_digest(key: Secret) -> bytes:
    """SHA-256 of a key; it has 256 bits of entropy, so that a slow hash would add nothing."""
    return hashlib.sha256(key.reveal().encode()).digest()
