"""The queue of deliveries and its history in memory."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from uuid import uuid4

from hymical.adapters.memory.store import MemoryStore
from hymical.domain.deliveries import (
    Attempt,
    AttemptOutcome,
    Delivery,
    DeliveryState,
    Failed,
    Message,
    claim,
    ended,
    holds,
    is_due,
    released,
    replayed,
)
from hymical.domain.destinations import DestinationState
from hymical.domain.errors import NotFound
from hymical.domain.ids import DeliveryId, LeaseToken
from hymical.domain.leases import Lease
from hymical.ports.clock import Clock
from hymical.ports.deliveries import ClaimedDelivery, DeliveryFilter, DeliveryView, Settled


class MemoryDeliveryQueue:
    def __init__(self, store: MemoryStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def owe(self, messages: Sequence[Message], deliveries: Sequence[Delivery]) -> None:
        rows = self._store.rows
        rows.messages.update({message.id: message for message in messages})
        rows.deliveries.update({delivery.id: delivery for delivery in deliveries})
        if any(delivery.due_at is not None for delivery in deliveries):
            self._store.ring()

    async def claim(self, *, limit: int, lease: timedelta) -> Sequence[ClaimedDelivery]:
        now = self._clock.now()
        due = sorted(
            (delivery.due_at, delivery.id)
            for delivery in self._store.rows.deliveries.values()
            if delivery.due_at is not None and is_due(delivery, now)
        )
        return [self._claim(delivery_id, now, lease) for _, delivery_id in due[:limit]]

    def _claim(self, delivery_id: DeliveryId, now: datetime, lease: timedelta) -> ClaimedDelivery:
        rows = self._store.rows
        before = rows.deliveries[delivery_id]
        if before.lease is not None:
            rows.attempts[delivery_id, before.lease.number] = Attempt(
                number=before.lease.number,
                started_at=before.lease.since,
                duration=None,
                outcome=AttemptOutcome.LEASE_LOST,
            )
        delivery = claim(before, token=LeaseToken(uuid4()), now=now, lease=lease)
        assert delivery.lease is not None  # noqa: S101  claimed
        rows.deliveries[delivery_id] = delivery
        return ClaimedDelivery(
            lease=delivery.lease,
            delivery=delivery,
            message=rows.messages[delivery.message_id],
            destination=rows.destinations[delivery.destination_id],
            lost=before.lease is not None,
        )

    async def settle(self, settled: Sequence[Settled]) -> Collection[DeliveryId]:
        rows, now = self._store.rows, self._clock.now()
        overtaken = set[DeliveryId]()
        for one in settled:
            delivery = rows.deliveries.get(one.lease.delivery_id)
            if delivery is None:
                overtaken.add(one.lease.delivery_id)
                continue
            key = (delivery.id, one.lease.number)
            recorded = rows.attempts.get(key)
            if one.attempt is not None and (
                recorded is None or recorded.outcome is AttemptOutcome.LEASE_LOST
            ):
                rows.attempts[key] = one.attempt
            if not holds(delivery, one.lease):
                overtaken.add(delivery.id)
                continue
            rows.deliveries[delivery.id] = ended(delivery, one.settlement, now)
            if isinstance(one.settlement, Failed) and one.settlement.disables_destination:
                destination = rows.destinations[delivery.destination_id]
                rows.destinations[destination.id] = replace(destination, state=DestinationState.DISABLED)
        return overtaken

    async def release(self, leases: Sequence[Lease]) -> None:
        now = self._clock.now()
        for lease in leases:
            delivery = self._store.rows.deliveries.get(lease.delivery_id)
            if delivery is not None and holds(delivery, lease):
                self._store.rows.deliveries[delivery.id] = released(delivery, now)
                self._store.ring()

    async def replay(self, delivery_id: DeliveryId) -> None:
        delivery = self._store.rows.deliveries.get(delivery_id)
        if delivery is None:
            raise NotFound("delivery", delivery_id)
        self._store.rows.deliveries[delivery_id] = replayed(delivery, self._clock.now())
        self._store.ring()


class MemoryDeliveryHistory:
    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    async def page(self, which: DeliveryFilter, *, before: str | None, limit: int) -> Sequence[DeliveryView]:
        views = (
            self._view(delivery) for _, delivery in sorted(self._store.rows.deliveries.items(), reverse=True)
        )
        return [view for view in views if (before is None or view.id < before) and _matches(view, which)][
            :limit
        ]

    async def get(self, delivery_id: DeliveryId) -> DeliveryView:
        delivery = self._store.rows.deliveries.get(delivery_id)
        if delivery is None:
            raise NotFound("delivery", delivery_id)
        return self._view(delivery)

    async def attempts(self, delivery_id: DeliveryId) -> Sequence[Attempt]:
        return [
            attempt for (of, _), attempt in sorted(self._store.rows.attempts.items()) if of == delivery_id
        ]

    def _view(self, delivery: Delivery) -> DeliveryView:
        message = self._store.rows.messages[delivery.message_id]
        destination = self._store.rows.destinations[delivery.destination_id]
        return DeliveryView(
            id=delivery.id,
            message_id=message.id,
            submission_id=message.submission_id,
            form_id=message.form_id,
            destination_id=destination.id,
            destination_url=destination.url,
            state=delivery.state,
            attempt_count=delivery.attempt_count,
            cycle_attempt_count=delivery.cycle_attempt_count,
            next_attempt_at=delivery.due_at if delivery.state is DeliveryState.PENDING else None,
            created_at=delivery.created_at,
            completed_at=delivery.completed_at,
            failure_reason=delivery.failure_reason,
        )


def _matches(view: DeliveryView, which: DeliveryFilter) -> bool:
    wanted = (
        (which.form_id, view.form_id),
        (which.destination_id, view.destination_id),
        (which.submission_id, view.submission_id),
        (which.state, view.state),
    )
    return all(want is None or want == has for want, has in wanted)
