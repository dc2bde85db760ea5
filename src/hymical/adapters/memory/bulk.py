"""Replays and back-fills by the thousand in memory."""

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime

from hymical.adapters.memory.deliveries import MemoryDeliveryQueue
from hymical.adapters.memory.store import MemoryStore
from hymical.domain.bulk import Extent, FailedDeliveries, PastSubmissions, Step, place_of
from hymical.domain.deliveries import FOR_GOOD, Delivery, DeliveryState, is_due
from hymical.domain.destinations import DestinationState
from hymical.domain.errors import NotReplayable
from hymical.domain.forms import Submission
from hymical.domain.ids import DestinationId, FormId
from hymical.ports.bulk import Past
from hymical.ports.clock import Clock


class MemoryBulkQueue:
    def __init__(self, store: MemoryStore, queue: MemoryDeliveryQueue, clock: Clock) -> None:
        self._store = store
        self._queue = queue
        self._clock = clock

    async def failed(self, which: FailedDeliveries, *, before: datetime, after: str, limit: int) -> Extent:
        rows = self._store.rows
        found = [
            delivery.destination_id
            for delivery in self._failed(which, before, after)
            if delivery.failure_reason not in FOR_GOOD
            and rows.messages[delivery.message_id].body
            and delivery.destination_id in rows.destinations
            and rows.destinations[delivery.destination_id].state is not DestinationState.DISABLED
        ][: limit + 1]
        return Extent(deliveries=len(found), destinations=len(set(found)))

    async def replay(self, which: FailedDeliveries, *, before: datetime, after: str, limit: int) -> Step:
        batch = list(self._failed(which, before, after))[:limit]
        skipped = Counter[str]()
        for delivery in batch:
            try:
                await self._queue.replay(delivery.id)
            except NotReplayable as refused:
                skipped[refused.reason or refused.state] += 1
        return Step(
            last=batch[-1].id if batch else "",
            sent=len(batch) - skipped.total(),
            skipped=dict(skipped),
            more=len(batch) == limit,
        )

    def _failed(self, which: FailedDeliveries, before: datetime, after: str) -> Iterator[Delivery]:
        rows = self._store.rows
        for delivery_id, delivery in sorted(rows.deliveries.items()):
            if delivery.state is not DeliveryState.FAILED or delivery_id <= after:
                continue
            destination = (rows.destinations | rows.deleted)[delivery.destination_id]
            wanted = (
                (which.form_id, destination.form_id),
                (which.destination_id, destination.id),
                (which.submission_id, rows.messages[delivery.message_id].submission_id),
                (which.reason, delivery.failure_reason),
            )
            at = delivery.completed_at
            if (
                all(want is None or want == has for want, has in wanted)
                and at is not None
                and at < before
                and (which.failed_after is None or at > which.failed_after)
            ):
                yield delivery

    async def unowed(self, which: PastSubmissions, *, before: datetime, after: str, limit: int) -> Extent:
        unowed = [one for one in self._past(which, before, after) if not one.owed][: limit + 1]
        return Extent(deliveries=len(unowed), destinations=min(len(unowed), 1))

    async def past(
        self, which: PastSubmissions, *, before: datetime, after: str, limit: int
    ) -> Sequence[Past]:
        return list(self._past(which, before, after))[:limit]

    def _past(self, which: PastSubmissions, before: datetime, after: str) -> Iterator[Past]:
        rows = self._store.rows
        form_id = rows.destinations[which.destination_id].form_id
        for submission in sorted(rows.submissions.values(), key=place_of):
            if (
                submission.form_id == form_id
                and place_of(submission) > after
                and not submission.is_spam
                and submission.received_at < before
                and (which.received_after is None or submission.received_at > which.received_after)
            ):
                yield self._with_message(submission, which.destination_id)

    def _with_message(self, submission: Submission, destination_id: DestinationId) -> Past:
        rows = self._store.rows
        messages = {one.id for one in rows.messages.values() if one.submission_id == submission.id}
        owed = any(
            one.message_id in messages and one.destination_id == destination_id
            for one in rows.deliveries.values()
        )
        return Past(submission=submission, message_id=min(messages, default=None), owed=owed)

    async def waiting(
        self, *, form_id: FormId | None, destination_id: DestinationId | None, limit: int
    ) -> int:
        rows, now = self._store.rows, self._clock.now()
        paced = {
            one.id
            for one in rows.destinations.values()
            if one.state is DestinationState.ACTIVE
            and destination_id in {None, one.id}
            and form_id in {None, one.form_id}
            and not (one.id in rows.trouble and rows.trouble[one.id].probing)
        }
        found = [
            one.id
            for one in rows.deliveries.values()
            if one.destination_id in paced and one.state is DeliveryState.PENDING and is_due(one, now)
        ]
        return min(len(found), limit + 1)
