"""From rows to destinations and back, with their secrets sealed."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from hymical.domain.destinations import Destination, DestinationState, Headers
from hymical.domain.errors import SecretUnreadable
from hymical.domain.ids import DestinationId
from hymical.domain.signing import SigningSecret
from hymical.ports.secrets import SecretCipher


class DestinationRows:
    """Reads and writes destinations; everywhere they are read, it is by the same column names."""

    def __init__(self, cipher: SecretCipher) -> None:
        self._cipher = cipher

    def destination(self, row: Mapping[Any, Any], *, readable: bool = False) -> Destination:
        """A destination out of a row of its table.

        Secrets and headers that cannot be opened are left out, so that one key that is missing does not take
        every other destination with it; with `readable` they raise `SecretUnreadable`.
        """
        try:
            secrets, headers = self._secrets(row["secrets"]), self._headers(row["headers"])
        except SecretUnreadable:
            if readable:
                raise
            secrets, headers = (), ()
        return Destination(
            id=DestinationId(row["id"]),
            form_id=row["form_id"],
            url=row["url"],
            state=DestinationState(row["state"]),
            secrets=secrets,
            headers=headers,
            max_in_flight=row["max_in_flight"],
            created_at=row["created_at"],
        )

    def joined(self, row: Mapping[Any, Any]) -> Destination:
        """A destination out of a row that holds its columns with the prefix `destination_`."""
        return self.destination(
            {
                "id": row["destination_id"],
                "form_id": row["form_id"],
                "url": row["url"],
                "state": row["destination_state"],
                "secrets": row["secrets"],
                "headers": row["headers"],
                "max_in_flight": row["max_in_flight"],
                "created_at": row["destination_created_at"],
            }
        )

    def sealed_secrets(self, secrets: Iterable[SigningSecret]) -> list[dict[str, str | None]]:
        return [
            {
                "sealed": self._cipher.seal(secret.value),
                "valid_until": secret.valid_until.isoformat() if secret.valid_until else None,
            }
            for secret in secrets
        ]

    def sealed_headers(self, headers: Headers) -> list[list[str]]:
        return [[name, self._cipher.seal(value)] for name, value in headers]

    def _secrets(self, stored: Iterable[Mapping[str, Any]]) -> tuple[SigningSecret, ...]:
        return tuple(
            SigningSecret(
                value=self._cipher.open(secret["sealed"]),
                valid_until=datetime.fromisoformat(secret["valid_until"]) if secret["valid_until"] else None,
            )
            for secret in stored
        )

    def _headers(self, stored: Iterable[tuple[str, str]]) -> Headers:
        return tuple((name, self._cipher.open(value)) for name, value in stored)
