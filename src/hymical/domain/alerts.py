"""Alerts: what nobody does although it is to be done, as the operator is told of it."""

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

PATIENCE = timedelta(minutes=1)
"""How long something is wrong before an alert is raised: a restart is none."""


class AlertKind(StrEnum):
    """What is wrong; the value begins the type of the event, as in `scheduler.missing`."""

    SCHEDULER_MISSING = "scheduler.missing"
    QUEUE_UNSERVED = "queue.unserved"

    @property
    def end(self) -> str:
        """The type of the event that tells that it is over."""
        match self:
            case AlertKind.SCHEDULER_MISSING:
                return "scheduler.back"
            case AlertKind.QUEUE_UNSERVED:
                return "queue.served"


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """`subject` is the queue's name where there is one."""

    kind: AlertKind
    subject: str = ""
