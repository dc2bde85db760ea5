"""From rows to domain values, where more than one slice reads them."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from hymical.domain.destinations import Destination, DestinationState
from hymical.domain.ids import DestinationId, FormId
from hymical.domain.signing import Secret, SigningSecret


def secrets_from_json(stored: Iterable[dict[str, Any]]) -> tuple[SigningSecret, ...]:
    return tuple(
        SigningSecret(
            value=Secret(secret["value"]),
            valid_until=datetime.fromisoformat(secret["valid_until"]) if secret["valid_until"] else None,
        )
        for secret in stored
    )


def secrets_to_json(secrets: Iterable[SigningSecret]) -> list[dict[str, Any]]:
    return [
        {
            "value": secret.value.reveal(),
            "valid_until": secret.valid_until.isoformat() if secret.valid_until else None,
        }
        for secret in secrets
    ]


def destination(
    *,
    id: str,
    form_id: str,
    url: str,
    state: str,
    secrets: list[dict[str, Any]],
    created_at: datetime,
) -> Destination:
    return Destination(
        id=DestinationId(id),
        form_id=FormId(form_id),
        url=url,
        state=DestinationState(state),
        secrets=secrets_from_json(secrets),
        created_at=created_at,
    )
