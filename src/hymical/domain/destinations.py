"""Where messages go."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from urllib.parse import urlsplit

from hymical.domain.errors import InvalidValue
from hymical.domain.ids import DestinationId, FormId
from hymical.domain.signing import SigningSecret

_LONGEST_URL = 2_048


class DestinationState(StrEnum):
    ACTIVE = "active"
    PAUSED = "paused"
    DISABLED = "disabled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    id: DestinationId
    form_id: FormId
    url: str
    state: DestinationState
    secrets: tuple[SigningSecret, ...]
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class NewDestination:
    """A destination that is asked for. Raises `InvalidValue`, naming the field and its rule."""

    id: DestinationId
    form_id: FormId
    url: str
    secrets: tuple[SigningSecret, ...]

    def __post_init__(self) -> None:
        check_url(self.url)


def check_url(url: str) -> None:
    """Raises `InvalidValue` for an address that no webhook can be sent to, whatever the network allows."""
    if len(url) > _LONGEST_URL:
        raise InvalidValue("url", f"must be at most {_LONGEST_URL} characters")
    if not url.isascii() or not url.isprintable() or " " in url:
        raise InvalidValue("url", "must be printable ASCII without spaces; percent-encode anything else")
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise InvalidValue("url", "is not a URL: its host or port cannot be read") from None
    if parts.scheme not in {"http", "https"}:
        raise InvalidValue("url", "must start with https:// (or http://, where that is allowed)")
    if not host:
        raise InvalidValue("url", "must name a host")
    if parts.username is not None or parts.password is not None:
        raise InvalidValue("url", "must not hold a user name or a password")
    if parts.fragment:
        raise InvalidValue("url", "must not hold a fragment (#…), which is never sent")
