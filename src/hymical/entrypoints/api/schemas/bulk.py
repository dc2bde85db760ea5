"""What is to be sent by the thousand, on the wire."""

import json
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from hymical.domain.deliveries import Reason
from hymical.domain.instants import rfc3339
from hymical.domain.jobs import Json
from hymical.entrypoints.api.pages import checked_filter
from hymical.entrypoints.api.schemas.instants import InstantIn

# JSON has no enumerations, and strict models take nothing for them
_Reason = Annotated[Reason, BeforeValidator(Reason)]


class ReplayIn(BaseModel):
    """What is left out, or null, is not looked at; `{}` is everything that failed."""

    model_config = ConfigDict(extra="forbid", strict=True)

    form_id: str | None = None
    destination_id: str | None = None
    submission_id: str | None = None
    state: Literal["failed"] | None = Field(default=None, description="Only what failed can be replayed.")
    reason: _Reason | None = Field(default=None, description="Why it failed.")
    failed_after: InstantIn | None = Field(default=None, description="Failed after this instant.")
    failed_before: InstantIn | None = Field(default=None, description="Failed before it; at most now.")

    def payload(self) -> Json:
        """Of the job: the same for the same question, however it was written. Raises `InvalidValue`."""
        return {
            name: value
            for name, value in {
                "form_id": checked_filter("form_id", self.form_id),
                "destination_id": checked_filter("destination_id", self.destination_id),
                "submission_id": checked_filter("submission_id", self.submission_id),
                "reason": self.reason and str(self.reason),
                "failed_after": self.failed_after and rfc3339(self.failed_after),
                "failed_before": self.failed_before and rfc3339(self.failed_before),
            }.items()
            if value is not None
        }

    def unique_key(self) -> str:
        """Of the job: whoever asks the same before it has ended gets that one."""
        return json.dumps(self.payload(), sort_keys=True)


class BackfillIn(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    received_after: InstantIn | None = Field(default=None, description="Received after this instant.")
    received_before: InstantIn | None = Field(default=None, description="Received before it; at most now.")

    def payload(self, destination_id: str) -> Json:
        """Of the job."""
        return {
            "destination_id": destination_id,
            "received_after": self.received_after and rfc3339(self.received_after),
            "received_before": self.received_before and rfc3339(self.received_before),
        }

    def unique_key(self, destination_id: str) -> str:
        """Of the job: there is one at a time for a destination, for two would owe it the same submissions."""
        return destination_id
