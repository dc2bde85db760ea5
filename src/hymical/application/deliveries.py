"""Claiming, sending, settling and replaying deliveries."""

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from hymical.domain.deliveries import Answer, Attempt, Failed, LeaseLost, OwnFault, recorded_outcome, settle
from hymical.domain.ids import DeliveryId
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
    WebhookRequest,
    WebhookSender,
)
from hymical.ports.ids import Ids

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What one claim brought in. `full` says that it took all it was allowed to, so that more may be due."""

    deliveries: Sequence[ClaimedDelivery]
    claimed_at: float
    full: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimDue:
    """Takes due deliveries to send now, and gives up those that lost their worker too often.

    Raises:
        StorageUnavailable: nothing is held, as far as can be known.
    """

    queue: DeliveryQueue
    policy: RetryPolicy
    lease: timedelta
    clock: Clock
    ids: Ids

    async def __call__(self, limit: int) -> Claim:
        # read before the claim, so that the time since then is never underrated
        claimed_at = self.clock.monotonic()
        claimed = await self.queue.claim(limit=limit, lease=self.lease)
        to_send: list[ClaimedDelivery] = []
        given_up: list[Settled] = []
        for one in claimed:
            verdict = settle(one.delivery, LeaseLost(), self.policy, self.ids.dice()) if one.lost else None
            if isinstance(verdict, Failed):
                given_up.append(Settled(lease=one.lease, settlement=verdict, attempt=None))
            else:
                to_send.append(one)
        if given_up:
            await self.queue.settle(given_up)
        return Claim(deliveries=to_send, claimed_at=claimed_at, full=len(claimed) == limit)


@dataclass(frozen=True, slots=True, kw_only=True)
class SendDelivery:
    """Signs a message anew and sends it once; says how its delivery is to be settled.

    The time that is signed is the database's at the claim plus what has passed since, so that this machine's
    own clock does not matter.
    """

    sender: WebhookSender
    policy: RetryPolicy
    clock: Clock
    ids: Ids

    async def __call__(self, claimed: ClaimedDelivery, claimed_at: float) -> Settled:
        began = self.clock.monotonic()
        started_at = claimed.lease.since + timedelta(seconds=began - claimed_at)
        try:
            answer = await self.sender.send(_request(claimed, started_at))
        except Exception as fault:  # noqa: BLE001  a slot must come back, whatever went wrong
            _log.exception("delivery %s: a fault in Hymical kept it from being sent", claimed.delivery.id)
            answer = Answer(
                outcome=OwnFault(),
                duration=timedelta(seconds=self.clock.monotonic() - began),
                error=f"a fault in Hymical: {type(fault).__name__}",
            )
        return Settled(
            lease=claimed.lease,
            settlement=settle(claimed.delivery, answer.outcome, self.policy, self.ids.dice()),
            attempt=_attempt(claimed, started_at, answer),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SettleFinished:
    """Writes down what was sent, all of it in one step; returns those whose lease had been lost.

    Raises:
        StorageUnavailable: whether it was written is unknown; it may be written again.
    """

    queue: DeliveryQueue

    async def __call__(self, finished: Sequence[Settled]) -> Collection[DeliveryId]:
        return await self.queue.settle(finished)


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
    )
