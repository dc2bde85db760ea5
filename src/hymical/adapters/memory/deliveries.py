"""The queue of deliveries and its history in memory."""

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from uuid import uuid4

from hymical.adapters.memory.store import DELIVERIES, MemoryStore
from hymical.domain.deliveries import (
    WITHDRAWALS,
    Attempt,
    Delivery,
    DeliveryState,
    Reason,
    claim,
    ended,
    holds,
    is_due,
    released,
    replayed,
    shares,
    withdraw,
)
from hymical.domain.destinations import Destination, DestinationState
from hymical.domain.errors import NotFound, NotReplayable, NotResendable
from hymical.domain.ids import DeliveryId, DestinationId, LeaseToken, SubmissionId
from hymical.domain.leases import Lease
from hymical.domain.messages import Message
from hymical.domain.outcomes import AttemptOutcome
from hymical.ports.clock import Clock
from hymical.ports.deliveries import (
    ClaimedBatch,
    ClaimedDelivery,
    DeliveryFilter,
    DeliveryView,
    Settled,
    SettleReport,
    Verdict,
)


class MemoryDeliveryQueue:
    def __init__(self, store: MemoryStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._after = ""

    async def owe(self, messages: Sequence[Message], deliveries: Sequence[Delivery]) -> None:
        rows = self._store.rows
        rows.messages.update({message.id: message for message in messages})
        rows.deliveries.update({delivery.id: delivery for delivery in deliveries})
        if any(delivery.due_at is not None for delivery in deliveries):
            self._store.ring(DELIVERIES)

    async def claim(self, *, limit: int, lease: timedelta, making_room: Sequence[Lease] = ()) -> ClaimedBatch:
        now, tokens = self._clock.now(), {one.token for one in making_room}
        due = defaultdict[DestinationId, list[Delivery]](list)
        in_flight = Counter[DestinationId]()
        for delivery in self._store.rows.deliveries.values():
            if is_due(delivery, now):
                due[delivery.destination_id].append(delivery)
            elif delivery.lease is not None and not (
                delivery.lease.token in tokens and self._is_trusted(delivery.destination_id)
            ):
                in_flight[delivery.destination_id] += 1
        stranded = [(lane, reason) for lane in sorted(due) if (reason := self._stranded(lane)) is not None]
        rooms = {
            lane: room
            for lane in sorted(due, key=lambda lane: (lane <= self._after, lane))
            if (room := self._room(lane, now) - in_flight[lane]) > 0
        }
        lanes = list(rooms)[:limit]
        self._after = lanes[-1] if len(lanes) == limit else ""
        share = dict(zip(lanes, shares(limit, len(lanes)), strict=True))
        chosen = [
            delivery
            for lane in lanes
            for delivery in sorted(due[lane], key=lambda one: (one.due_at, one.id))[
                : min(rooms[lane], share[lane])
            ]
        ]
        taken = Counter(delivery.destination_id for delivery in chosen)
        return ClaimedBatch(
            deliveries=[self._claim(delivery, now, lease) for delivery in chosen],
            more=len(lanes) == limit or taken.items() & share.items() != set(),
            rooms={lane: rooms[lane] for lane in lanes},
            stranded=stranded,
        )

    def _stranded(self, lane: DestinationId) -> Reason | None:
        destination = self._store.rows.destinations.get(lane)
        if destination is None:
            return Reason.DESTINATION_DELETED
        return Reason.DESTINATION_DISABLED if destination.state is DestinationState.DISABLED else None

    def _room(self, lane: DestinationId, now: datetime) -> int:
        destination, trouble = self._store.rows.destinations.get(lane), self._store.rows.trouble.get(lane)
        if destination is None or destination.state is not DestinationState.ACTIVE:
            return 0
        if self._is_trusted(lane):
            return destination.max_in_flight
        return 0 if trouble is not None and trouble.held_until is not None and now < trouble.held_until else 1

    def _is_trusted(self, lane: DestinationId) -> bool:
        trouble = self._store.rows.trouble.get(lane)
        return trouble is None or not trouble.probing

    def _claim(self, before: Delivery, now: datetime, lease: timedelta) -> ClaimedDelivery:
        rows = self._store.rows
        if before.lease is not None:
            rows.attempts[before.id, before.lease.number] = Attempt(
                number=before.lease.number,
                started_at=before.lease.since,
                duration=None,
                outcome=AttemptOutcome.LEASE_LOST,
            )
        delivery = claim(before, token=LeaseToken(str(uuid4())), now=now, lease=lease)
        assert delivery.lease is not None  # noqa: S101  claimed
        rows.deliveries[delivery.id] = delivery
        return ClaimedDelivery(
            lease=delivery.lease,
            delivery=delivery,
            message=rows.messages[delivery.message_id],
            destination=rows.destinations[delivery.destination_id],
            lost=before.lease is not None,
        )

    async def settle(self, settled: Sequence[Settled], *, unless_troubled: bool = False) -> SettleReport:
        now = self._clock.now()
        troubled = {one.claimed.destination.id for one in settled} & self._store.rows.trouble.keys()
        return SettleReport(
            verdicts=[
                Verdict.TROUBLED
                if unless_troubled and one.claimed.destination.id in troubled
                else self._settle(one, now)
                for one in settled
            ],
            troubled=troubled,
        )

    def _settle(self, one: Settled, now: datetime) -> Verdict:
        rows = self._store.rows
        delivery = rows.deliveries.get(one.lease.delivery_id)
        if delivery is None:
            return Verdict.OVERTAKEN
        key = (delivery.id, one.lease.number)
        recorded = rows.attempts.get(key)
        known = recorded is not None and (recorded.outcome is not AttemptOutcome.LEASE_LOST or recorded.late)
        if one.attempt is not None and not known:
            erased = not rows.messages[delivery.message_id].body
            rows.attempts[key] = replace(
                one.attempt,
                error=None if erased else one.attempt.error,
                response_excerpt=None if erased else one.attempt.response_excerpt,
                late=recorded is not None,
            )
        if not holds(delivery, one.lease):
            if known:
                return Verdict.REPEATED
            return Verdict.WITHDRAWN if delivery.failure_reason in WITHDRAWALS else Verdict.OVERTAKEN
        rows.deliveries[delivery.id] = ended(delivery, one.settlement, now)
        return Verdict.SETTLED

    async def release(self, leases: Sequence[Lease]) -> None:
        now = self._clock.now()
        for lease in leases:
            delivery = self._store.rows.deliveries.get(lease.delivery_id)
            if delivery is not None and holds(delivery, lease):
                self._store.rows.deliveries[delivery.id] = released(delivery, now)
                self._store.ring(DELIVERIES)

    async def replay(self, delivery_id: DeliveryId) -> None:
        delivery = self._store.rows.deliveries.get(delivery_id)
        if delivery is None:
            raise NotFound("delivery", delivery_id)
        fresh = replayed(delivery, self._clock.now())
        if not self._store.rows.messages[delivery.message_id].body:
            raise NotReplayable(delivery_id, delivery.state, Reason.SUBMISSION_DELETED)
        if (hindrance := self._stranded(delivery.destination_id)) is not None:
            raise NotReplayable(delivery_id, delivery.state, hindrance)
        self._store.rows.deliveries[delivery_id] = fresh
        self._store.ring(DELIVERIES)

    async def resend(self, delivery_id: DeliveryId, new_id: DeliveryId) -> None:
        rows, now = self._store.rows, self._clock.now()
        earlier = rows.deliveries.get(delivery_id)
        if earlier is None:
            raise NotFound("delivery", delivery_id)
        if self._stranded(earlier.destination_id) or not rows.messages[earlier.message_id].body:
            raise NotResendable(delivery_id)
        rows.deliveries[new_id] = Delivery(
            id=new_id,
            message_id=earlier.message_id,
            destination_id=earlier.destination_id,
            state=DeliveryState.PENDING,
            due_at=now,
            created_at=now,
        )
        self._store.ring(DELIVERIES)

    async def withdraw_from(self, destination_id: DestinationId, reason: Reason) -> None:
        self._withdraw(reason, lambda delivery: delivery.destination_id == destination_id)

    async def withdraw_submission(self, submission_id: SubmissionId) -> None:
        messages = self._store.rows.messages
        self._withdraw(
            Reason.SUBMISSION_DELETED,
            lambda delivery: messages[delivery.message_id].submission_id == submission_id,
        )

    def _withdraw(self, reason: Reason, unwanted: Callable[[Delivery], bool]) -> None:
        now, deliveries = self._clock.now(), self._store.rows.deliveries
        for delivery in list(deliveries.values()):
            end = withdraw(delivery, reason)
            if end is not None and unwanted(delivery):
                deliveries[delivery.id] = ended(delivery, end, now)


class MemoryDeliveryHistory:
    def __init__(self, store: MemoryStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock

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
        rows = self._store.rows
        destination = (rows.destinations | rows.deleted)[delivery.destination_id]
        trouble = rows.trouble.get(destination.id)
        held_until = trouble.held_until if trouble else None
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
            destination_state=destination.state,
            destination_held_until=held_until if held_until and held_until > self._clock.now() else None,
            void=self._void(message, destination),
        )

    def _void(self, message: Message, destination: Destination) -> Reason | None:
        if not message.body:
            return Reason.SUBMISSION_DELETED
        return Reason.DESTINATION_DELETED if destination.id in self._store.rows.deleted else None


def _matches(view: DeliveryView, which: DeliveryFilter) -> bool:
    wanted = (
        (which.form_id, view.form_id),
        (which.destination_id, view.destination_id),
        (which.submission_id, view.submission_id),
        (which.state, view.state),
    )
    return all(want is None or want == has for want, has in wanted)
