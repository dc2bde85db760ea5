"""Whether this process is alive, and whether it can do its work."""

from litestar import get
from litestar.datastructures import State


@get("/health", summary="Whether this process is alive", tags=["operation"])
async def health() -> dict[str, str]:
    return {"status": "ok"}


@get("/ready", summary="Whether the database is reachable and at this build's migration", tags=["operation"])
async def ready(state: State) -> dict[str, str]:
    """Raises `StorageUnavailable` or `SchemaMismatch`."""
    await state.container.schema().check()
    return {"status": "ready"}
