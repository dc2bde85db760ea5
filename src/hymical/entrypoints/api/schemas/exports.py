"""Exports on the wire."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from hymical.application.exports import WantedExport
from hymical.domain.exports import ExportFormat, ExportStyle
from hymical.domain.ids import FormId
from hymical.entrypoints.api.schemas.instants import InstantIn


class ExportIn(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    form_id: str = Field(description="Whose submissions.", pattern="^[a-z0-9_-]{3,64}$")
    format: Literal["csv", "json", "ndjson"]
    received_after: InstantIn | None = Field(default=None, description="Only later ones.")
    received_before: InstantIn | None = Field(default=None, description="Only earlier ones.")
    spam: bool = Field(default=False, description="Those kept as spam, instead of the others.")
    bom: bool = Field(default=False, description="A byte order mark in front of CSV, for Excel.")

    def to_domain(self) -> WantedExport:
        return WantedExport(
            form_id=FormId(self.form_id),
            style=ExportStyle(format=ExportFormat(self.format), bom=self.bom),
            received_after=self.received_after,
            received_before=self.received_before,
            spam=self.spam,
        )
