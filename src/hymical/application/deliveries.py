"""Claiming, sending, settling and replaying deliveries."""

import contextlib
import logging
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from hymical.domain.deliveries import (
    WITHDRAWALS,
    Attempt,
    Delivered,
    Failed,
    Later,
    Reason,
    Settlement,
    fan_out,
    settle,
    showed,
)
from hymical.domain.destinations import (
    Destination,
    DestinationEvent,
    DestinationState,
    Seen,
    Trouble,
    TroublePolicy,
    observe,
)
from hymical.domain.errors import NotFound, StorageUnavailable
from hymical.domain.ids import OPERATOR, DeliveryId, DestinationId
from hymical.domain.leases import Lease
from hymical.domain.messages import Message, delivery_failed_message, destination_event_message
from hymical.domain.outcomes import Answer, LeaseLost, OwnFault, recorded_outcome
from hymical.domain.retries import RetryPolicy
from hymical.domain.signing import signature_headers
from hymical.ports.clock import Clock
from hymical.ports.deliveries import (
    ClaimedDelivery,
    DeliveryFilter,
    DeliveryHistory,
    DeliveryQueue,
    DeliveryView,
    Settled,
    Verdict,
    WebhookRequest,
    WebhookSender,
)
from hymical.ports.destinations import DestinationHealth, DestinationRepository
from hymical.ports.ids import Ids
from hymical.ports.transactions import Transactions

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What one claim brought in.

    `given_up` lost their worker too often to be sent, or what they would send was erased while they were replayed
    or sent again; they are to be settled as they are. `claimed_at` is the
    monotonic time before the claim. `more` says that others may be claimable right now, and `rooms` how many each
    destination of theirs had room for.
    """

    to_send: Sequence[ClaimedDelivery]
    given_up: Sequence[Settled]
    claimed_at: float
    more: bool
    rooms: Mapping[DestinationId, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimDue:
    """Takes due deliveries to send now. `making_room` are leases whose places it may fill.

    Raises:
        StorageUnavailable: nothing is held, as far as can be known.
    """

    queue: DeliveryQueue
    policy: RetryPolicy
    lease: timedelta
    clock: Clock
    ids: Ids

    async def __call__(self, limit: int, making_room: Sequence[Lease] = ()) -> Claim:
        # read before the claim, so that the time since then is never underrated
        claimed_at = self.clock.monotonic()
        batch = await self.queue.claim(limit=limit, lease=self.lease, making_room=making_room)
        for destination_id, reason in batch.stranded:
            # the next claim finds them again; what this one holds must not be forgotten
            with contextlib.suppress(StorageUnavailable):
                await self.queue.withdraw_from(destination_id, reason)
        to_send: list[ClaimedDelivery] = []
        given_up: list[Settled] = []
        for one in batch.deliveries:
            verdict: Settlement | None = None
            if not one.message.body:
                verdict = Failed(reason=Reason.SUBMISSION_DELETED)
            elif one.lost:
                verdict = settle(one.delivery, LeaseLost(), self.policy, self.ids.dice())
            if isinstance(verdict, Failed):
                given_up.append(Settled(claimed=one, settlement=verdict, attempt=None))
            else:
                to_send.append(one)
        return Claim(
            to_send=to_send, given_up=given_up, claimed_at=claimed_at, more=batch.more, rooms=batch.rooms
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SendDelivery:
    """Signs a message anew and sends it once; says how its delivery is to be settled.

    The time that is signed is the database's at the claim plus what has passed since, so that this machine's
    own clock does not matter. What was held for longer than its lease is not sent, but given back.
    """

    sender: WebhookSender
    policy: RetryPolicy
    clock: Clock
    ids: Ids

    async def __call__(self, claimed: ClaimedDelivery, claimed_at: float) -> Settled:
        began = self.clock.monotonic()
        started_at = claimed.lease.since + timedelta(seconds=began - claimed_at)
        if claimed.delivery.due_at is not None and started_at >= claimed.delivery.due_at:
            # this process stood still: the lease has ended, and another may be sending by now
            unsent = Later(delay=timedelta(0), spends=False)
            return Settled(claimed=claimed, settlement=unsent, attempt=None)
        try:
            answer = await self._sent(claimed, started_at)
        except Exception as fault:  # noqa: BLE001  a slot must come back, whatever went wrong
            _log.exception("delivery %s: a fault in Hymical kept it from being sent", claimed.delivery.id)
            answer = Answer(
                outcome=OwnFault(),
                duration=timedelta(seconds=self.clock.monotonic() - began),
                error=f"a fault in Hymical: {type(fault).__name__}",
            )
        return Settled(
            claimed=claimed,
            settlement=settle(claimed.delivery, answer.outcome, self.policy, self.ids.dice()),
            attempt=_attempt(claimed, started_at, answer),
        )

    async def _sent(self, claimed: ClaimedDelivery, at: datetime) -> Answer:
        if not claimed.destination.secrets:
            return Answer(
                outcome=OwnFault(),
                duration=timedelta(0),
                error="it cannot be signed: FORMS_SECRET_KEY does not open this destination's secrets",
            )
        return await self.sender.send(_request(claimed, at))


@dataclass(frozen=True, slots=True, kw_only=True)
class Settlements:
    """What became of each that was settled, in their order; `shut` are destinations to which no more is to be sent.

    Their breakers are open, or they were disabled.
    """

    verdicts: Sequence[Verdict]
    shut: Collection[DestinationId] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SettleFinished:
    """Writes down what was sent, and what follows from it for a destination in the same transaction.

    A destination's breaker opens and closes here, it is disabled here, and the operator's events are stored
    here, each exactly once. The operator's own destination raises none.

    Raises:
        StorageUnavailable: whether it was written is unknown; it may be written again.
    """

    queue: DeliveryQueue
    health: DestinationHealth
    destinations: DestinationRepository
    transactions: Transactions
    policy: TroublePolicy
    ids: Ids

    async def __call__(self, finished: Sequence[Settled]) -> Settlements:
        if not all(isinstance(one.settlement, Delivered) for one in finished):
            return await self._settle(finished)
        # nothing follows from a success, except at a destination that was in trouble
        verdicts = list((await self.queue.settle(finished, unless_troubled=True)).verdicts)
        left = [nth for nth, verdict in enumerate(verdicts) if verdict is Verdict.TROUBLED]
        if left:
            settled = await self._settle([finished[nth] for nth in left])
            for nth, verdict in zip(left, settled.verdicts, strict=True):
                verdicts[nth] = verdict
        return Settlements(verdicts=verdicts)

    async def _settle(self, finished: Sequence[Settled]) -> Settlements:
        async with self.transactions.begin():
            report = await self.queue.settle(finished)
            settled = [
                one
                for one, verdict in zip(finished, report.verdicts, strict=True)
                if verdict is Verdict.SETTLED
            ]
            news = _news(settled, report.troubled)
            shut = await self._follow_up(news, settled) if news else ()
        return Settlements(verdicts=report.verdicts, shut=shut)

    async def _follow_up(
        self, news: Mapping[DestinationId, Sequence[Settled]], settled: Sequence[Settled]
    ) -> Collection[DestinationId]:
        """Which destinations are shut now."""
        known = await self.health.lock(news.keys() - {OPERATOR})
        news_for_people: list[tuple[Message, str]] = [
            (
                self._failed(one, known.now),
                f"{one.claimed.delivery.id} to {one.claimed.destination.id}: {one.settlement.reason}",
            )
            for one in settled
            if isinstance(one.settlement, Failed)
            and one.settlement.reason not in WITHDRAWALS
            and one.claimed.destination.id != OPERATOR
        ]
        left: dict[DestinationId, Trouble | None] = {}
        shut: set[DestinationId] = set()
        for destination, trouble in known.destinations.values():
            seen = observe(
                trouble,
                _seen(news[destination.id], destination),
                now=known.now,
                policy=self.policy,
                dice=self.ids.dice(),
            )
            left[destination.id] = seen.trouble
            if seen.disables or (seen.trouble is not None and seen.trouble.probing):
                shut.add(destination.id)
            news_for_people += (
                (
                    destination_event_message(event, destination, trouble, self.ids.message(), known.now),
                    destination.id,
                )
                for event in seen.events
                if not (event is DestinationEvent.DISABLED and destination.state is DestinationState.DISABLED)
            )
            if seen.disables:
                await self.health.disable(destination.id)
                await self.queue.withdraw_from(destination.id, Reason.DESTINATION_DISABLED)
        await self.health.save(left)
        await self._tell(news_for_people, known.now)
        return shut

    def _failed(self, one: Settled, now: datetime) -> Message:
        assert isinstance(one.settlement, Failed)  # noqa: S101  chosen above
        return delivery_failed_message(
            delivery_id=one.claimed.delivery.id,
            submission_id=one.claimed.message.submission_id,
            destination=one.claimed.destination,
            reason=one.settlement.reason,
            message_id=self.ids.message(),
            at=now,
        )

    async def _tell(self, news: Sequence[tuple[Message, str]], now: datetime) -> None:
        if not news:
            return
        for message, subject in news:
            _log.warning("%s: %s", message.type, subject)
        try:
            operator = await self.destinations.get(OPERATOR)
        except NotFound:
            return
        if operator.state is DestinationState.DISABLED:
            # the settings name nobody any more
            return
        messages = [message for message, _ in news]
        owed = [
            delivery
            for message in messages
            for delivery in fan_out(message, [operator], now=now, new_id=self.ids.delivery)
        ]
        await self.queue.owe(messages, owed)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseUnsent:
    """Hands back what was claimed and not sent, for others to take at once."""

    queue: DeliveryQueue

    async def __call__(self, unsent: Sequence[ClaimedDelivery]) -> None:
        await self.queue.release([one.lease for one in unsent])


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayDelivery:
    """Starts a failed delivery afresh. Raises `NotFound` or `NotReplayable`."""

    queue: DeliveryQueue
    history: DeliveryHistory

    async def __call__(self, delivery_id: DeliveryId) -> DeliveryView:
        await self.queue.replay(delivery_id)
        return await self.history.get(delivery_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResendDelivery:
    """Sends the same message to the same destination once more, as a delivery of its own.

    Raises:
        NotFound: there is no such delivery.
        NotResendable: its submission was erased, or its destination deleted or disabled.
    """

    queue: DeliveryQueue
    history: DeliveryHistory
    ids: Ids

    async def __call__(self, delivery_id: DeliveryId) -> DeliveryView:
        new_id = self.ids.delivery()
        await self.queue.resend(delivery_id, new_id)
        return await self.history.get(new_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowDelivery:
    """A delivery with its attempts, by number. Raises `NotFound`."""

    history: DeliveryHistory

    async def __call__(self, delivery_id: DeliveryId) -> tuple[DeliveryView, Sequence[Attempt]]:
        return await self.history.get(delivery_id), await self.history.attempts(delivery_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListDeliveries:
    """The newest first."""

    history: DeliveryHistory

    async def __call__(
        self, which: DeliveryFilter, *, before: str | None, limit: int
    ) -> Sequence[DeliveryView]:
        return await self.history.page(which, before=before, limit=limit)


def _request(claimed: ClaimedDelivery, at: datetime) -> WebhookRequest:
    return WebhookRequest(
        url=claimed.destination.url,
        headers=(
            ("content-type", "application/json"),
            *signature_headers(
                message_id=claimed.message.id,
                at=at,
                body=claimed.message.body,
                secrets=claimed.destination.secrets,
            ),
            ("hymical-delivery", claimed.delivery.id),
            ("hymical-attempt", str(claimed.lease.number)),
            *((name, value.reveal()) for name, value in claimed.destination.headers),
        ),
        body=claimed.message.body,
    )


def _attempt(claimed: ClaimedDelivery, started_at: datetime, answer: Answer) -> Attempt:
    return Attempt(
        number=claimed.lease.number,
        started_at=started_at,
        duration=answer.duration,
        outcome=recorded_outcome(answer.outcome),
        response_status=answer.response_status,
        error=answer.error,
        response_excerpt=answer.response_excerpt,
        truncated=answer.truncated,
        remote_address=answer.remote_address,
    )


def _news(
    settled: Sequence[Settled], troubled: Collection[DestinationId]
) -> Mapping[DestinationId, Sequence[Settled]]:
    """What was settled of each destination that failed or was in trouble; of others there is no news."""
    news = defaultdict[DestinationId, list[Settled]](list)
    for one in settled:
        news[one.claimed.destination.id].append(one)
    return {
        destination_id: of_it
        for destination_id, of_it in news.items()
        if destination_id in troubled or not all(isinstance(one.settlement, Delivered) for one in of_it)
    }


def _seen(settled: Sequence[Settled], destination: Destination) -> Seen:
    """What attempts showed of a destination; those made at an address that it no longer has show nothing."""
    return showed(
        (one.attempt.outcome, one.settlement)
        for one in settled
        if one.attempt is not None and one.claimed.destination.url == destination.url
    )
