"""Progress: what a job tells people while it runs."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from hymical.domain.ids import JobId
from hymical.domain.jobs import Json, check_json, check_text

LONGEST_STEP = 200
LARGEST_MESSAGE = 65_536
"""Bytes of JSON: whoever watches gets all of it, and lists of jobs show the newest."""


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


def checked(event: ProgressEvent) -> ProgressEvent:
    """The event, as it may be told. Raises `InvalidValue`: its step or its message cannot be stored."""
    check_text("step", event.step, longest=LONGEST_STEP)
    if event.message is not None:
        check_json("message", event.message, largest=LARGEST_MESSAGE)
    return event


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedEvent:
    """An event as it is kept: `number` counts from 1 within its job, without gaps; `at` is the database's time."""

    number: int
    at: datetime
    event: ProgressEvent
