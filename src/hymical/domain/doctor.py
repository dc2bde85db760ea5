"""What an operator can get wrong, as facts; whoever tells of them finds the words."""

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

CLOCK_TOLERANCE = timedelta(seconds=5)
"""How far a machine's clock may be off the database's: ids are made by it, and lists are in their order."""


class Ailment(StrEnum):
    """What a finding is about, as it stands in JSON."""

    SETTING_INVALID = "setting_invalid"
    SETTING_UNKNOWN = "setting_unknown"
    JOB_TYPES_INVALID = "job_types_invalid"
    DATABASE_UNUSABLE = "database_unusable"
    RIGHTS_MISSING = "rights_missing"
    CLOCK_OFF = "clock_off"
    WORKER_MISSING = "worker_missing"
    SCHEDULER_MISSING = "scheduler_missing"
    QUEUE_UNSERVED = "queue_unserved"
    DESTINATION_FAILING = "destination_failing"
    DESTINATION_DISABLED = "destination_disabled"
    DESTINATION_BLOCKED = "destination_blocked"
    SEALED_OTHERWISE = "sealed_otherwise"
    ALERTS_BLOCKED = "alerts_blocked"
    ALERTS_UNSET = "alerts_unset"
    SECRETS_PLAIN = "secrets_plain"

    @property
    def is_wrong(self) -> bool:
        """Whether it keeps Hymical from doing its work; the others are choices worth knowing of."""
        return self not in {Ailment.ALERTS_UNSET, Ailment.SECRETS_PLAIN}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """`subject` is the id or the name of what ails, where there is one; `fact` is what was found there."""

    ailment: Ailment
    subject: str = ""
    fact: str = ""
