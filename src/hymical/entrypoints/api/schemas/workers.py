"""Workers on the wire."""

from pydantic import BaseModel, Field

from hymical.entrypoints.api.schemas.instants import Instant
from hymical.ports.workers import WorkerKind, WorkerView


class WorkerOut(BaseModel):
    id: str
    host: str
    pid: int
    version: str
    queues: list[str] = Field(description="Those whose jobs it runs; none: it delivers webhooks.")
    kind: WorkerKind = Field(description="A scheduler reports as workers do.")
    in_flight: int
    started_at: Instant
    last_seen_at: Instant
    live: bool = Field(description="Whether it was seen within the last 30 seconds.")

    @classmethod
    def of(cls, view: WorkerView) -> "WorkerOut":
        return cls(
            **{name: getattr(view, name) for name in WorkerOut.model_fields} | {"queues": list(view.queues)}
        )


class WorkersOut(BaseModel):
    items: list[WorkerOut]
