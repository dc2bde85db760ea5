"""Warnings of keys that expire."""

from pydantic import BaseModel, ConfigDict

from hymical.application.keys import WarnOfExpiringKeys
from hymical.domain.jobs import Ending, Finished
from hymical.entrypoints.jobs.registry import job
from hymical.ports.jobs import JobContext


class Nothing(BaseModel):
    model_config = ConfigDict(extra="forbid")


@job(queue="maintenance")
async def warn_of_expiring_keys(
    payload: Nothing,
    context: JobContext,
    *,
    warn_of_expiring_keys: WarnOfExpiringKeys,
) -> Ending:
    return Finished(result={"warned_of": await warn_of_expiring_keys()})
