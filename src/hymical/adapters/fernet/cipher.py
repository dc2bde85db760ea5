"""Secrets sealed with Fernet (AES-128-CBC and HMAC-SHA256), or left plain where no key is set."""

from collections.abc import Sequence
from functools import lru_cache

from cryptography.fernet import Fernet, InvalidToken, MultiFernet

from hymical.domain.errors import SecretUnreadable
from hymical.domain.signing import Secret

_PLAIN, _FERNET = "plain:", "fernet:"


class FernetCipher:
    """The port `SecretCipher`. The first key seals, any of them opens; without keys new secrets stay plain.

    `keys` are URL-safe base64 of 32 bytes each. Raises `ValueError` for any other.
    """

    def __init__(self, keys: Sequence[Secret]) -> None:
        self._fernet = MultiFernet([Fernet(key.reveal()) for key in keys]) if keys else None
        # a destination's secrets come with every claim; opening them each time would cost more than signing
        self._opened = lru_cache(maxsize=4_096)(self._open)

    def seal(self, secret: Secret) -> str:
        if self._fernet is None:
            return _PLAIN + secret.reveal()
        return _FERNET + self._fernet.encrypt(secret.reveal().encode()).decode()

    def open(self, sealed: str) -> Secret:
        return self._opened(sealed)

    def _open(self, sealed: str) -> Secret:
        if sealed.startswith(_PLAIN):
            return Secret(sealed.removeprefix(_PLAIN))
        if self._fernet is None:
            raise SecretUnreadable
        try:
            return Secret(self._fernet.decrypt(sealed.removeprefix(_FERNET).encode()).decode())
        except InvalidToken:
            raise SecretUnreadable from None
