"""Signatures by Standard Webhooks 1.0 (https://www.standardwebhooks.com), and the secrets behind them."""

import base64
import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from hymical.domain.errors import InvalidValue

_PREFIX = "whsec_"
_SECRET_BYTES = range(24, 65)


class Secret:
    """Text that must not be shown; only `reveal` gives it away."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return "Secret('…')"

    __str__ = __repr__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and hmac.compare_digest(self._text.encode(), other._text.encode())

    def __hash__(self) -> int:
        return hash((Secret, self._text))


@dataclass(frozen=True, slots=True, kw_only=True)
class SigningSecret:
    """One secret of a destination; after `valid_until` it no longer signs (None: no end is set)."""

    value: Secret
    valid_until: datetime | None = None


def new_signing_secret(random: bytes) -> Secret:
    """The `whsec_…` text of 24 to 64 random bytes. Raises `InvalidValue` for any other number of bytes."""
    if len(random) not in _SECRET_BYTES:
        raise InvalidValue("secret", "must hold 24 to 64 bytes")
    return Secret(_PREFIX + base64.b64encode(random).decode())


def is_signing_secret(secret: Secret) -> bool:
    """Whether a secret was made as Standard Webhooks says: `whsec_` and 24 to 64 bytes in base64."""
    try:
        return secret.reveal().startswith(_PREFIX) and len(_key(secret)) in _SECRET_BYTES
    except InvalidValue:
        return False


def signature_headers(
    *, message_id: str, at: datetime, body: bytes, secrets: Sequence[SigningSecret]
) -> tuple[tuple[str, str], ...]:
    """The three `webhook-*` headers of one attempt: `body` signed with every secret still valid `at`."""
    timestamp = str(int(at.timestamp()))
    signed = b".".join((message_id.encode(), timestamp.encode(), body))
    signatures = " ".join(
        "v1," + base64.b64encode(hmac.digest(_key(secret.value), signed, hashlib.sha256)).decode()
        for secret in secrets
        if secret.valid_until is None or at < secret.valid_until
    )
    return (("webhook-id", message_id), ("webhook-timestamp", timestamp), ("webhook-signature", signatures))


def _key(secret: Secret) -> bytes:
    text = secret.reveal().removeprefix(_PREFIX)
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        # the cause would carry the secret
        raise InvalidValue("secret", f"must be {_PREFIX} and base64") from None
