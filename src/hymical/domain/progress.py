"""Progress: what a job tells people while it runs."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from hymical.domain.ids import JobId
from hymical.domain.jobs import Json


class StepStatus(StrEnum):
    """The state of one step of a job."""

    STARTED = "started"
    PROGRESS = "progress"
    COMPLETED = "completed"
    SKIPPED = "skipped"
    PAUSED = "paused"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressEvent:
    job_id: JobId
    step: str
    status: StepStatus
    message: Json | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedEvent:
    """An event as it is kept: `number` counts from 1 within its job, without gaps; `at` is the database's time."""

    number: int
    at: datetime
    event: ProgressEvent
