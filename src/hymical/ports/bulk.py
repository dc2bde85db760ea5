"""What is sent again, or sent late, by the thousand."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from hymical.domain.bulk import Extent, FailedDeliveries, PastSubmissions, Step
from hymical.domain.forms import Submission
from hymical.domain.ids import DestinationId, FormId, MessageId


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """A submission from before, with its message, if it has one; `owed`: the destination has a delivery of it."""

    submission: Submission
    message_id: MessageId | None
    owed: bool


class BulkQueue(Protocol):
    """Walks over what is there: failed deliveries by id, submissions by `place_of`.

    `after` is the place of the last one that was dealt with, or empty; only what failed, or was received, before
    `before` is looked at.
    """

    async def failed(self, which: FailedDeliveries, *, before: datetime, after: str, limit: int) -> Extent:
        """How many can be replayed, counted up to one more than `limit`."""
        ...

    async def replay(self, which: FailedDeliveries, *, before: datetime, after: str, limit: int) -> Step:
        """Starts the next ones afresh, looking at up to `limit`, in one step; wakes the workers.

        Those that `DeliveryQueue.replay` would refuse are skipped, by the reason that is in the way.
        """
        ...

    async def unowed(self, which: PastSubmissions, *, before: datetime, after: str, limit: int) -> Extent:
        """How many the destination has no delivery of, counted up to one more than `limit`."""
        ...

    async def past(
        self, which: PastSubmissions, *, before: datetime, after: str, limit: int
    ) -> Sequence[Past]:
        """The next ones, at most `limit`; none of them is erased until the transaction ends."""
        ...

    async def waiting(
        self, *, form_id: FormId | None, destination_id: DestinationId | None, limit: int
    ) -> int:
        """How many deliveries are due and unsent, up to one more than `limit`.

        Of destinations that are sent to at their full pace only: what waits for one that is paused, or fails, takes
        nothing from the others.
        """
        ...
