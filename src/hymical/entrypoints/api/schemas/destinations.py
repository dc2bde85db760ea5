"""Destinations on the wire."""

from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from hymical.domain.destinations import DEFAULT_MAX_IN_FLIGHT, Destination, DestinationState
from hymical.domain.signing import Secret
from hymical.entrypoints.api.schemas.instants import Instant, InstantIn

_URL = "Where webhooks go: https://…, at most 2,048 characters."
_HEADERS = "Sent with every webhook; values are never shown again. Hymical's own cannot be set."
_MAX_IN_FLIGHT = "How many requests may be on their way at one time, 1 to 1,000."

# JSON has no enumerations, and strict models take nothing for them
_State = Annotated[DestinationState, BeforeValidator(DestinationState)]


class DestinationIn(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    url: str = Field(description=_URL)
    headers: dict[str, str] = Field(default_factory=dict, description=_HEADERS)
    max_in_flight: int = Field(default=DEFAULT_MAX_IN_FLIGHT, description=_MAX_IN_FLIGHT)


class DestinationPatch(BaseModel):
    """What is left out, or null, stays as it is."""

    model_config = ConfigDict(extra="forbid")

    url: str | None = Field(default=None, description=_URL)
    headers: dict[str, str] | None = Field(default=None, description=_HEADERS + " Replaces all of them.")
    max_in_flight: int | None = Field(default=None, strict=True, description=_MAX_IN_FLIGHT)
    state: _State | None = Field(
        default=None,
        description="active; paused (deliveries wait); disabled (what waits, and what comes, fails at once).",
    )


class RotationIn(BaseModel):
    model_config = ConfigDict(extra="forbid")

    previous_valid_until: InstantIn | None = Field(
        default=None,
        description="Until when earlier secrets sign; 24 hours from now if left out, in the past: no longer.",
    )


class DestinationOut(BaseModel):
    id: str
    form_id: str | None
    url: str
    state: DestinationState
    headers: list[str] = Field(description="The names of its own headers.")
    max_in_flight: int
    created_at: Instant

    @classmethod
    def of(cls, destination: Destination) -> "DestinationOut":
        return cls(
            id=destination.id,
            form_id=destination.form_id,
            url=destination.url,
            state=destination.state,
            headers=[name for name, _ in destination.headers],
            max_in_flight=destination.max_in_flight,
            created_at=destination.created_at,
        )


class DestinationWithSecret(DestinationOut):
    secret: str = Field(description="Verifies webhooks; shown now and never again.")

    @classmethod
    def showing(cls, destination: Destination, secret: Secret) -> "DestinationWithSecret":
        return cls(**DestinationOut.of(destination).model_dump(), secret=secret.reveal())
