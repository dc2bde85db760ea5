"""Secrets at rest."""

from typing import Protocol

from hymical.domain.signing import Secret


class SecretCipher(Protocol):
    """What is stored in place of a secret."""

    def seal(self, secret: Secret) -> str: ...

    def open(self, sealed: str) -> Secret:
        """Raises `SecretUnreadable` when it was sealed with a key that is not at hand."""
        ...
