"""Where messages go, what may be set on it, and how well it does."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from urllib.parse import urlsplit

from hymical.domain.errors import InvalidValue
from hymical.domain.ids import DestinationId, FormId
from hymical.domain.retries import spread
from hymical.domain.signing import Secret, SigningSecret

DEFAULT_MAX_IN_FLIGHT = 10

_LONGEST_URL = 2_048
_MOST_IN_FLIGHT = 1_000
_MOST_HEADERS = 20
_LONGEST_HEADER = 1_024
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}", re.ASCII)
_OWN_HEADERS = frozenset(
    {
        "accept",
        "accept-encoding",
        "connection",
        "content-encoding",
        "content-length",
        "content-type",
        "expect",
        "host",
        "keep-alive",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "user-agent",
    }
)
_OWN_PREFIXES = ("webhook-", "hymical-", "proxy-")

Headers = tuple[tuple[str, Secret], ...]
"""A destination's own headers; their values may be credentials."""


class DestinationState(StrEnum):
    ACTIVE = "active"
    PAUSED = "paused"
    DISABLED = "disabled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """`form_id` is None for the operator's, which events go to. `max_in_flight` bounds requests at one time."""

    id: DestinationId
    form_id: FormId | None
    url: str
    state: DestinationState
    secrets: tuple[SigningSecret, ...]
    headers: Headers = ()
    max_in_flight: int = DEFAULT_MAX_IN_FLIGHT
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class NewDestination:
    """A destination that is asked for. Raises `InvalidValue`, naming the field and its rule."""

    id: DestinationId
    form_id: FormId | None
    url: str
    secrets: tuple[SigningSecret, ...]
    headers: Headers = ()
    max_in_flight: int = DEFAULT_MAX_IN_FLIGHT

    def __post_init__(self) -> None:
        check_url(self.url)
        check_headers(self.headers)
        check_max_in_flight(self.max_in_flight)


@dataclass(frozen=True, slots=True, kw_only=True)
class DestinationChange:
    """What is to be different; None leaves a field as it is. Raises `InvalidValue`."""

    url: str | None = None
    headers: Headers | None = None
    max_in_flight: int | None = None
    state: DestinationState | None = None

    def __post_init__(self) -> None:
        if self.url is not None:
            check_url(self.url)
        if self.headers is not None:
            check_headers(self.headers)
        if self.max_in_flight is not None:
            check_max_in_flight(self.max_in_flight)


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


def check_headers(headers: Headers) -> None:
    """Raises `InvalidValue` for headers that cannot be sent, or that would set or shadow Hymical's own."""
    if len(headers) > _MOST_HEADERS:
        raise InvalidValue("headers", f"must be at most {_MOST_HEADERS}")
    seen = set[str]()
    for name, value in headers:
        lower = name.lower()
        if _HEADER_NAME.fullmatch(name) is None:
            raise InvalidValue("headers", "must have names of letters, digits and - only")
        if lower in _OWN_HEADERS or lower.startswith(_OWN_PREFIXES):
            raise InvalidValue("headers", f"must not set {lower}, which Hymical sets itself")
        if lower in seen:
            raise InvalidValue("headers", f"must not set {lower} twice")
        seen.add(lower)
        text = value.reveal()
        if (
            not text.isascii()
            or not text.isprintable()
            or text != text.strip()
            or len(text) > _LONGEST_HEADER
        ):
            raise InvalidValue(
                "headers", f"must give {lower} at most {_LONGEST_HEADER} printable ASCII characters, trimmed"
            )


def check_max_in_flight(max_in_flight: int) -> None:
    if not 1 <= max_in_flight <= _MOST_IN_FLIGHT:
        raise InvalidValue("max_in_flight", f"must be 1 to {_MOST_IN_FLIGHT}")


def rotated(
    secrets: Sequence[SigningSecret], new: Secret, *, previous_valid_until: datetime, now: datetime
) -> tuple[SigningSecret, ...]:
    """Secrets after a rotation: the new one without an end, earlier ones until their end, ended ones gone.

    A secret that had an end already keeps it, so that rotating twice does not stretch or cut its window.
    """
    kept = (
        secret if secret.valid_until else replace(secret, valid_until=previous_valid_until)
        for secret in secrets
    )
    still_valid = (secret for secret in kept if secret.valid_until is not None and now < secret.valid_until)
    return (*still_valid, SigningSecret(value=new))


# How well a destination does


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """A destination that has answered with nothing but failures since `failing_since`.

    `held_until` is set while the circuit breaker is open: nothing is sent before then, and one at a time
    afterwards, until one succeeds.
    """

    failing_since: datetime
    failures_in_a_row: int
    warned: bool = False
    openings: int = 0
    held_until: datetime | None = None

    @property
    def probing(self) -> bool:
        """Whether it gets one request at a time: the breaker has opened and not yet closed."""
        return self.openings > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TroublePolicy:
    """When the breaker opens and for how long, when the operator is warned, and when a destination is disabled.

    Times count from the first failure.
    """

    opens_after: int = 5
    first_pause: timedelta = timedelta(seconds=10)
    longest_pause: timedelta = timedelta(minutes=5)
    warns_after: timedelta = timedelta(hours=24)
    disables_after: timedelta = timedelta(days=5)


class DestinationEvent(StrEnum):
    """What the operator is told of a destination."""

    FAILING = "destination.failing"
    DISABLED = "destination.disabled"
    RECOVERED = "destination.recovered"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What a batch of attempts showed of one destination; faults on our own side are not among them."""

    succeeded: int = 0
    failed: int = 0
    gone: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What follows: the trouble that is left (None: all is well), and what the operator is told."""

    trouble: Trouble | None
    events: tuple[DestinationEvent, ...] = field(default=())
    disables: bool = False


def observe(
    trouble: Trouble | None, seen: Seen, *, now: datetime, policy: TroublePolicy, dice: float
) -> Observation:
    """The state of a destination's health after a batch of attempts. Pure, and the only place that decides."""
    if seen.gone:
        return Observation(trouble=None, events=(DestinationEvent.DISABLED,), disables=True)
    if seen.succeeded:
        recovered = trouble is not None and trouble.warned
        return Observation(trouble=None, events=(DestinationEvent.RECOVERED,) if recovered else ())
    if not seen.failed:
        return Observation(trouble=trouble)
    since = trouble.failing_since if trouble else now
    before = trouble.failures_in_a_row if trouble else 0
    if now - since >= policy.disables_after:
        return Observation(trouble=None, events=(DestinationEvent.DISABLED,), disables=True)
    warns = now - since >= policy.warns_after and not (trouble and trouble.warned)
    left = Trouble(
        failing_since=since,
        failures_in_a_row=before + seen.failed,
        warned=warns or (trouble is not None and trouble.warned),
        openings=trouble.openings if trouble else 0,
        held_until=trouble.held_until if trouble else None,
    )
    return Observation(
        trouble=_held(left, now, policy, dice), events=(DestinationEvent.FAILING,) if warns else ()
    )


def _held(trouble: Trouble, now: datetime, policy: TroublePolicy, dice: float) -> Trouble:
    if trouble.failures_in_a_row < policy.opens_after:
        return trouble
    if trouble.held_until is not None and now < trouble.held_until:
        # requests that were on their way when the breaker opened say nothing new
        return trouble
    pause = min(policy.first_pause * 2 ** min(trouble.openings, 16), policy.longest_pause)
    return replace(trouble, openings=trouble.openings + 1, held_until=now + spread(pause, dice))


def headers_from(given: Mapping[str, str]) -> Headers:
    return tuple((name, Secret(value)) for name, value in given.items())
