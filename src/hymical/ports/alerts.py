"""Where all processes agree on what is wrong, so that each alert is raised once."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from hymical.domain.alerts import Alert


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertChanges:
    """Alerts to tell of. What ended before it was raised is in neither; `now` is the database's time."""

    raised: Sequence[Alert]
    ended: Sequence[Alert]
    now: datetime


class AlertBook(Protocol):
    async def note(self, wrong: Collection[Alert]) -> AlertChanges:
        """Compares what is wrong now with what was before; whatever is wrong for `PATIENCE` is raised.

        Of any number of callers one is told of each change. To be called in the transaction that tells of them.
        """
        ...
