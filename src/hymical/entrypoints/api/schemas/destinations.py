"""Destinations on the wire."""

from pydantic import BaseModel, ConfigDict, Field

from hymical.domain.destinations import Destination
from hymical.entrypoints.api.schemas.instants import Instant


class DestinationIn(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    url: str = Field(description="Where webhooks go: https://…, at most 2,048 characters.")


class DestinationOut(BaseModel):
    id: str
    form_id: str
    url: str
    state: str = Field(description="active, paused or disabled")
    created_at: Instant

    @classmethod
    def of(cls, destination: Destination) -> "DestinationOut":
        return cls(
            id=destination.id,
            form_id=destination.form_id,
            url=destination.url,
            state=destination.state,
            created_at=destination.created_at,
        )


class DestinationWithSecret(DestinationOut):
    secret: str = Field(description="Verifies webhooks; shown now and never again.")

    @classmethod
    def of(cls, destination: Destination) -> "DestinationWithSecret":
        return cls(
            **DestinationOut.of(destination).model_dump(), secret=destination.secrets[-1].value.reveal()
        )
