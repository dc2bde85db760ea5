"""Replays by filter, and past submissions for a new destination."""

from pydantic import AwareDatetime, BaseModel, ConfigDict

from hymical.application.bulk import BackfillDestination, ReplayDeliveries
from hymical.domain.bulk import FailedDeliveries, PastSubmissions
from hymical.domain.deliveries import Reason
from hymical.domain.ids import DestinationId, FormId, SubmissionId
from hymical.domain.jobs import Ending
from hymical.entrypoints.jobs.registry import job
from hymical.ports.jobs import JobContext


class Replay(BaseModel):
    model_config = ConfigDict(extra="forbid")

    form_id: FormId | None = None
    destination_id: DestinationId | None = None
    submission_id: SubmissionId | None = None
    reason: Reason | None = None
    failed_after: AwareDatetime | None = None
    failed_before: AwareDatetime | None = None


class Backfill(BaseModel):
    model_config = ConfigDict(extra="forbid")

    destination_id: DestinationId
    received_after: AwareDatetime | None = None
    received_before: AwareDatetime | None = None


@job(queue="maintenance")
async def replay_deliveries(
    payload: Replay, context: JobContext, *, replay_deliveries: ReplayDeliveries
) -> Ending:
    return await replay_deliveries(FailedDeliveries(**dict(payload)), context)


@job(queue="maintenance")
async def backfill_destination(
    payload: Backfill, context: JobContext, *, backfill_destination: BackfillDestination
) -> Ending:
    return await backfill_destination(PastSubmissions(**dict(payload)), context)
