"""The clean-up of history."""

from pydantic import BaseModel

from hymical.application.retention import CleanUp
from hymical.domain.jobs import Ending, Finished, Json
from hymical.domain.progress import StepStatus
from hymical.domain.retention import CleanUpState, Kind
from hymical.entrypoints.jobs.registry import job
from hymical.ports.jobs import JobContext


class CleanUpPayload(BaseModel):
    pass


class SavedState(BaseModel):
    """A clean-up's checkpoint."""

    kind: Kind | None
    behind: str
    removed: dict[Kind, int]


@job(queue="maintenance")
async def clean_up(payload: CleanUpPayload, context: JobContext, *, clean_up: CleanUp) -> Ending:
    async def note(state: CleanUpState) -> None:
        await context.save(SavedState.model_validate(state, from_attributes=True).model_dump(mode="json"))
        await context.publish("clean-up", StepStatus.PROGRESS, shown(state))

    saved = context.job.checkpoint
    state = CleanUpState() if saved is None else CleanUpState(**dict(SavedState.model_validate(saved)))
    done = await clean_up(state, note)
    return Finished(result=shown(done))


def shown(state: CleanUpState) -> Json:
    """How many of each kind were removed."""
    return {kind.value: count for kind, count in state.removed.items()}
