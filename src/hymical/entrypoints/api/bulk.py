"""Replay by filter, and past submissions for a destination: jobs."""

from litestar import Router, post
from litestar.di import NamedDependency

from hymical.application.destinations import ShowDestination
from hymical.application.jobs import EnqueueJob, ShowJob
from hymical.entrypoints.api.destinations import destination_id_of
from hymical.entrypoints.api.provide import use_cases
from hymical.entrypoints.api.schemas.bulk import BackfillIn, ReplayIn
from hymical.entrypoints.api.schemas.jobs import EnqueuedOut


@post("/deliveries/replay", status_code=202, summary="Replay what failed, by filter, as a job")
async def replay_deliveries(
    data: ReplayIn, enqueue_job: NamedDependency[EnqueueJob], show_job: NamedDependency[ShowJob]
) -> EnqueuedOut:
    enqueued = await enqueue_job("replay_deliveries", data.payload(), unique_key=data.unique_key())
    return EnqueuedOut.showing(await show_job(enqueued.job_id), duplicate=enqueued.duplicate)


@post(
    "/destinations/{destination_id:str}/backfill",
    status_code=202,
    summary="Send it the past submissions of its form, as a job",
)
async def backfill_destination(
    destination_id: str,
    show_destination: NamedDependency[ShowDestination],
    enqueue_job: NamedDependency[EnqueueJob],
    show_job: NamedDependency[ShowJob],
    data: BackfillIn | None = None,
) -> EnqueuedOut:
    destination = await show_destination(destination_id_of(destination_id))
    asked = data or BackfillIn()
    enqueued = await enqueue_job(
        "backfill_destination", asked.payload(destination.id), unique_key=asked.unique_key(destination.id)
    )
    return EnqueuedOut.showing(await show_job(enqueued.job_id), duplicate=enqueued.duplicate)


management = Router(
    "/",
    route_handlers=[replay_deliveries, backfill_destination],
    dependencies=use_cases("enqueue_job", "show_destination", "show_job"),
)
