"""Who is at work."""

from litestar import Router, get
from litestar.di import NamedDependency

from hymical.application.workers import ListWorkers
from hymical.entrypoints.api.provide import use_cases
from hymical.entrypoints.api.schemas.workers import WorkerOut, WorkersOut


@get("/workers", summary="List workers, the last to start first")
async def list_workers(list_workers: NamedDependency[ListWorkers]) -> WorkersOut:
    return WorkersOut(items=[WorkerOut.of(view) for view in await list_workers()])


management = Router("/", route_handlers=[list_workers], dependencies=use_cases("list_workers"))
