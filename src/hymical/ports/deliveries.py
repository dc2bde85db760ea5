"""The queue of deliveries, its history, and the sender of webhooks."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Protocol

from hymical.domain.deliveries import Attempt, Delivery, DeliveryState, Reason, Settlement
from hymical.domain.destinations import Destination, DestinationState
from hymical.domain.ids import DeliveryId, DestinationId, FormId, SubmissionId
from hymical.domain.leases import Lease
from hymical.domain.messages import Message
from hymical.domain.outcomes import Answer


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedDelivery:
    """A lease with all that is needed to send. `lost` says that the claim took over an expired lease."""

    lease: Lease
    delivery: Delivery
    message: Message
    destination: Destination
    lost: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedBatch:
    """What one claim took.

    `more` says that others may be claimable right now, and `rooms` how many each destination had room for before
    these were taken. `stranded` are destinations that were deleted or disabled while a delivery to them was being
    stored; what waits for them is to be withdrawn.
    """

    deliveries: Sequence[ClaimedDelivery]
    more: bool
    rooms: Mapping[DestinationId, int]
    stranded: Sequence[tuple[DestinationId, Reason]] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """How the holder of a claim gives it up, with the attempt it made, if it made one."""

    claimed: ClaimedDelivery
    settlement: Settlement
    attempt: Attempt | None

    @property
    def lease(self) -> Lease:
        return self.claimed.lease


class Verdict(StrEnum):
    """What became of a settlement; `REPEATED` had been written before, by a call that did not learn of it.

    `TROUBLED` says that it was left alone, as was asked for.
    """

    SETTLED = "settled"
    TROUBLED = "troubled"
    REPEATED = "repeated"
    OVERTAKEN = "overtaken"
    WITHDRAWN = "withdrawn"


@dataclass(frozen=True, slots=True, kw_only=True)
class SettleReport:
    """The verdicts, in the order of the settlements; `troubled` are those destinations known to be in trouble."""

    verdicts: Sequence[Verdict]
    troubled: Collection[DestinationId]


class DeliveryQueue(Protocol):
    """Deliveries that are owed, each in the hands of at most one holder.

    No two callers ever hold the same live lease, and whoever lost a lease changes nothing with it.
    """

    async def owe(self, messages: Sequence[Message], deliveries: Sequence[Delivery]) -> None:
        """Stores messages and their deliveries, and wakes the workers once that is committed."""
        ...

    async def claim(self, *, limit: int, lease: timedelta, making_room: Sequence[Lease] = ()) -> ClaimedBatch:
        """Takes up to `limit` due deliveries for the time of `lease`, shared out between their destinations.

        No destination ever has more in flight than its `max_in_flight`, or than one while its breaker has
        opened and not closed; paused ones and those that are held get none. Leases of the caller's that are
        `making_room` are not counted, except at a destination whose breaker has opened: they were accepted, or
        the caller sends what it takes in their place only once they are. Of one destination's, those come first
        that waited longest. Each gets a new token and the next attempt number.
        Where another's lease has ended, the lost attempt is recorded under its own number as `lease_lost` in the
        same step.
        """
        ...

    async def settle(self, settled: Sequence[Settled], *, unless_troubled: bool = False) -> SettleReport:
        """Ends claims, each with its settlement and its attempt, in one step.

        With `unless_troubled` those of destinations in trouble are left as they are, to be settled in the
        transaction that writes down what follows for their destinations.

        Of one whose holder was overtaken, or that was withdrawn, the state is left as it is; the late attempt
        completes the record that says `lease_lost` under its number, or is added to the history.
        """
        ...

    async def release(self, leases: Sequence[Lease]) -> None:
        """Hands back what was not sent: due again at once, nothing spent. Leases lost by now are ignored."""
        ...

    async def replay(self, delivery_id: DeliveryId) -> None:
        """Starts a failed delivery afresh, and wakes the workers.

        Raises:
            NotFound: there is no such delivery.
            NotReplayable: it is in another state than failed, or failed for good, or its submission was erased or
                its destination deleted since, or its destination is disabled.
        """
        ...

    async def resend(self, delivery_id: DeliveryId, new_id: DeliveryId) -> None:
        """Owes the same message to the same destination once more, under `new_id`, and wakes the workers.

        Raises:
            NotFound: there is no such delivery.
            NotResendable: its submission was erased, or its destination deleted or disabled.
        """
        ...

    async def withdraw_from(self, destination_id: DestinationId, reason: Reason) -> None:
        """Fails what is still open for a destination. Whoever holds one finds that out when it reports."""
        ...

    async def withdraw_submission(self, submission_id: SubmissionId) -> None:
        """Fails what is still open of a submission's deliveries, as `submission_deleted`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryView:
    """A delivery as people read it.

    `next_attempt_at` is set while it waits, and only then; `destination_held_until` while that lies ahead.
    `void` says why there is nothing left to send, or nowhere to send it, whatever state it is in.
    """

    id: DeliveryId
    message_id: str
    submission_id: SubmissionId | None
    form_id: FormId | None
    destination_id: DestinationId
    destination_url: str
    state: DeliveryState
    attempt_count: int
    cycle_attempt_count: int
    next_attempt_at: datetime | None
    created_at: datetime
    completed_at: datetime | None
    failure_reason: Reason | None
    destination_state: DestinationState
    destination_held_until: datetime | None
    void: Reason | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryFilter:
    form_id: FormId | None = None
    destination_id: DestinationId | None = None
    submission_id: SubmissionId | None = None
    state: DeliveryState | None = None


class DeliveryHistory(Protocol):
    async def page(self, which: DeliveryFilter, *, before: str | None, limit: int) -> Sequence[DeliveryView]:
        """The newest first, those older than the one with the id `before`, at most `limit`."""
        ...

    async def get(self, delivery_id: DeliveryId) -> DeliveryView:
        """Raises `NotFound`."""
        ...

    async def attempts(self, delivery_id: DeliveryId) -> Sequence[Attempt]:
        """By number. Empty for a delivery that was never sent, or is not there."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookRequest:
    """One signed POST, ready to go."""

    url: str
    headers: tuple[tuple[str, str], ...]
    body: bytes


class WebhookSender(Protocol):
    async def send(self, request: WebhookRequest) -> Answer:
        """Makes one POST, follows no redirect, and says what came of it within the total deadline.

        Never raises for anything that the receiver or the network does.
        """
        ...
