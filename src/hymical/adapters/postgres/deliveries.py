"""The queue of deliveries and its history in PostgreSQL."""

from collections import Counter
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import DateTime, Row, bindparam, case, func, literal, select

from hymical.adapters.postgres.errors import translated
from hymical.adapters.postgres.rows import DestinationRows
from hymical.adapters.postgres.statements import in_plain_text
from hymical.adapters.postgres.tables import (
    attempts,
    deliveries,
    destination_trouble,
    destinations,
    messages,
    submissions,
)
from hymical.adapters.postgres.transactions import PostgresTransactions
from hymical.domain.deliveries import (
    FOR_GOOD,
    WITHDRAWALS,
    Attempt,
    Delivered,
    Delivery,
    DeliveryState,
    Failed,
    Later,
    Reason,
    Settlement,
    shares,
    spends_allowance,
)
from hymical.domain.destinations import DestinationState
from hymical.domain.errors import NotFound, NotReplayable, NotResendable
from hymical.domain.ids import DeliveryId, DestinationId, LeaseToken, MessageId, SubmissionId
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
from hymical.ports.secrets import SecretCipher

# behind every id
_END = "~"


class PostgresDeliveryQueue:
    def __init__(self, transactions: PostgresTransactions, clock: Clock, cipher: SecretCipher) -> None:
        self._transactions = transactions
        self._clock = clock
        self._rows = DestinationRows(cipher)
        self._after = ""

    async def owe(self, new: Sequence[Message], owed: Sequence[Delivery]) -> None:
        parameters = {
            "message_ids": [message.id for message in new],
            "types": [message.type for message in new],
            "submission_ids": [message.submission_id for message in new],
            "form_ids": [message.form_id for message in new],
            "bodies": [message.body for message in new],
            "ids": [delivery.id for delivery in owed],
            "of_messages": [delivery.message_id for delivery in owed],
            "destination_ids": [delivery.destination_id for delivery in owed],
            "states": [delivery.state for delivery in owed],
            "due_ats": [delivery.due_at for delivery in owed],
            "created_ats": [delivery.created_at for delivery in owed],
            "completed_ats": [delivery.completed_at for delivery in owed],
            "failure_reasons": [delivery.failure_reason for delivery in owed],
        }
        await self._transactions.run("owe", parameters)

    async def claim(self, *, limit: int, lease: timedelta) -> ClaimedBatch:
        now = self._clock.pinned()
        async with self._transactions.together():
            await self._transactions.run("promote", {"now": now})
            lanes = await self._next_lanes(limit)
            ours = [lane.destination_id for lane in lanes if lane.locked and lane.stranded is None]
            share = dict(zip(ours, shares(limit, len(ours)), strict=True))
            parameters = {"now": now, "lanes": ours, "shares": list(share.values()), "lease": lease}
            rows = await self._transactions.run("claim", parameters) if ours else []
        claimed = [self._claimed(row) for row in rows]
        taken = Counter(one.destination.id for one in claimed)
        return ClaimedBatch(
            deliveries=claimed,
            more=len(lanes) == limit
            or not all(lane.locked for lane in lanes)
            or taken.items() & share.items() != set(),
            stranded=[
                (DestinationId(lane.destination_id), Reason(lane.stranded)) for lane in lanes if lane.stranded
            ],
        )

    async def _next_lanes(self, limit: int) -> Sequence[Any]:
        """The destinations that may be sent to, from where the last claim stopped, once around at most."""
        after = self._after
        bounds = {"now": self._clock.pinned(), "after": after, "until": _END, "limit": limit}
        lanes = await self._transactions.run("choose_lanes", bounds)
        if after and len(lanes) < limit:
            bounds |= {"after": "", "until": after, "limit": limit - len(lanes)}
            lanes += await self._transactions.run("choose_lanes", bounds)
        # the next claim goes on behind these, so that every destination has its turn
        self._after = lanes[-1].destination_id if len(lanes) == limit else ""
        return lanes

    async def settle(self, settled: Sequence[Settled]) -> SettleReport:
        # in one order everywhere, so that two batches that share a delivery do not wait for each other
        ordered = sorted(settled, key=lambda one: one.lease.delivery_id)
        attempts = [one.attempt for one in ordered]
        parameters = {
            "now": self._clock.pinned(),
            "ids": [one.lease.delivery_id for one in ordered],
            "tokens": [one.lease.token for one in ordered],
            "states": [_state_after(one.settlement) for one in ordered],
            "delays": [getattr(one.settlement, "delay", None) for one in ordered],
            "spends": [spends_allowance(one.settlement) for one in ordered],
            "failure_reasons": [getattr(one.settlement, "reason", None) for one in ordered],
            "numbers": [one.lease.number for one in ordered],
            "started_ats": [attempt and attempt.started_at for attempt in attempts],
            "durations": [attempt and _milliseconds(attempt.duration) for attempt in attempts],
            "outcomes": [attempt and attempt.outcome for attempt in attempts],
            "statuses": [attempt and attempt.response_status for attempt in attempts],
            "errors": [attempt and attempt.error for attempt in attempts],
            "excerpts": [attempt and attempt.response_excerpt for attempt in attempts],
            "truncated": [attempt is not None and attempt.truncated for attempt in attempts],
            "addresses": [attempt and attempt.remote_address for attempt in attempts],
        }
        found = {row.token: row for row in await self._transactions.run("settle", parameters)}
        overtaken = [row.id for row in found.values() if row.verdict == Verdict.OVERTAKEN]
        unwanted = await self._withdrawn(overtaken) if overtaken else frozenset()
        return SettleReport(
            verdicts=[
                Verdict.WITHDRAWN
                if one.lease.delivery_id in unwanted
                else Verdict(found[one.lease.token].verdict)
                for one in settled
            ],
            troubled={one.claimed.destination.id for one in settled if found[one.lease.token].troubled},
        )

    async def _withdrawn(self, ids: Sequence[str]) -> Collection[str]:
        """Which of them were withdrawn: whoever waited for that has not seen it, in a statement begun before."""
        query = select(deliveries.c.id).where(
            deliveries.c.id.in_(ids), deliveries.c.failure_reason.in_(WITHDRAWALS)
        )
        with translated():
            async with self._transactions.connection() as connection:
                return set(await connection.scalars(query))

    async def release(self, leases: Sequence[Lease]) -> None:
        parameters = {
            "now": self._clock.pinned(),
            "ids": [lease.delivery_id for lease in leases],
            "tokens": [lease.token for lease in leases],
        }
        await self._transactions.run("release", parameters)

    async def replay(self, delivery_id: DeliveryId) -> None:
        parameters = {"now": self._clock.pinned(), "id": delivery_id}
        query = (
            select(
                deliveries.c.state,
                deliveries.c.failure_reason,
                _void.label("void"),
                (destinations.c.state == DestinationState.DISABLED).label("disabled"),
            )
            .join(messages, messages.c.id == deliveries.c.message_id)
            .join(destinations, destinations.c.id == deliveries.c.destination_id)
            .where(deliveries.c.id == delivery_id)
        )
        if await self._transactions.run("replay", parameters):
            return
        with translated():
            async with self._transactions.connection() as connection:
                found = (await connection.execute(query)).one_or_none()
        if found is None:
            raise NotFound("delivery", delivery_id)
        raise NotReplayable(delivery_id, found.state, _hindrance(found))

    async def resend(self, delivery_id: DeliveryId, new_id: DeliveryId) -> None:
        parameters = {"now": self._clock.pinned(), "id": delivery_id, "new_id": new_id}
        query = select(literal(1)).where(deliveries.c.id == delivery_id)
        if await self._transactions.run("resend", parameters):
            return
        with translated():
            async with self._transactions.connection() as connection:
                found = (await connection.execute(query)).one_or_none()
        if found is None:
            raise NotFound("delivery", delivery_id)
        raise NotResendable(delivery_id)

    async def withdraw_from(self, destination_id: DestinationId, reason: Reason) -> None:
        await self._withdraw(
            "withdraw_from_destination", {"destination_id": destination_id, "reason": reason}
        )

    async def withdraw_submission(self, submission_id: SubmissionId) -> None:
        parameters: dict[str, str] = {"submission_id": submission_id, "reason": Reason.SUBMISSION_DELETED}
        with translated():
            async with self._transactions.together() as connection:
                # whoever makes a message of it, or sends one again, ends first: what they did is withdrawn too
                await connection.execute(
                    select(submissions.c.id).where(submissions.c.id == submission_id).with_for_update()
                )
                await self._transactions.run("lock_messages_of_submission", parameters)
                await self._withdraw("withdraw_of_submission", parameters)

    async def _withdraw(self, name: str, parameters: dict[str, str]) -> None:
        await self._transactions.run(name, parameters | {"now": self._clock.pinned()})

    def _claimed(self, row: Any) -> ClaimedDelivery:  # noqa: ANN401  the columns of claim.sql
        stored = row._asdict()
        lease = Lease(
            delivery_id=stored["id"],
            token=LeaseToken(stored["lease_token"]),
            number=stored["attempt_count"],
            since=stored["lease_since"],
        )
        return ClaimedDelivery(
            lease=lease,
            delivery=Delivery(
                id=stored["id"],
                message_id=MessageId(stored["message_id"]),
                destination_id=DestinationId(stored["destination_id"]),
                state=DeliveryState(stored["state"]),
                attempt_count=stored["attempt_count"],
                cycle_attempt_count=stored["cycle_attempt_count"],
                lost_in_a_row=stored["lost_in_a_row"],
                due_at=stored["due_at"],
                lease=lease,
                created_at=stored["created_at"],
            ),
            message=Message(
                id=MessageId(stored["message_id"]),
                type=stored["type"],
                submission_id=stored["submission_id"],
                form_id=stored["message_form_id"],
                body=stored["body"],
            ),
            destination=self._rows.joined(stored),
            lost=stored["lost"],
        )


class PostgresDeliveryHistory:
    def __init__(self, transactions: PostgresTransactions, clock: Clock) -> None:
        self._transactions = transactions
        self._clock = clock

    async def page(self, which: DeliveryFilter, *, before: str | None, limit: int) -> Sequence[DeliveryView]:
        query = _views.order_by(deliveries.c.id.desc()).limit(limit)
        if which.form_id is not None:
            of_form = select(destinations.c.id).where(destinations.c.form_id == which.form_id)
            query = query.where(deliveries.c.destination_id.in_(of_form))
        if which.destination_id is not None:
            query = query.where(deliveries.c.destination_id == which.destination_id)
        if which.submission_id is not None:
            query = query.where(messages.c.submission_id == which.submission_id)
        if which.state is not None:
            query = query.where(deliveries.c.state == in_plain_text(which.state))
        if before is not None:
            query = query.where(deliveries.c.id < before)
        with translated():
            async with self._transactions.connection() as connection:
                return [_view(row) for row in await connection.execute(query, self._now())]

    async def get(self, delivery_id: DeliveryId) -> DeliveryView:
        query = _views.where(deliveries.c.id == delivery_id)
        with translated():
            async with self._transactions.connection() as connection:
                row = (await connection.execute(query, self._now())).one_or_none()
        if row is None:
            raise NotFound("delivery", delivery_id)
        return _view(row)

    async def attempts(self, delivery_id: DeliveryId) -> Sequence[Attempt]:
        query = select(attempts).where(attempts.c.delivery_id == delivery_id).order_by(attempts.c.number)
        with translated():
            async with self._transactions.connection() as connection:
                return [_attempt(row) for row in await connection.execute(query)]

    def _now(self) -> dict[str, datetime | None]:
        return {"now": self._clock.pinned()}


_now = func.coalesce(bindparam("now", type_=DateTime(timezone=True)), func.clock_timestamp())
_void = case(
    (func.length(messages.c.body) == 0, literal(Reason.SUBMISSION_DELETED.value)),
    (destinations.c.deleted_at.is_not(None), literal(Reason.DESTINATION_DELETED.value)),
)

_views = (
    select(
        deliveries.c.id,
        deliveries.c.message_id,
        messages.c.submission_id,
        messages.c.form_id,
        deliveries.c.destination_id,
        destinations.c.url.label("destination_url"),
        deliveries.c.state,
        deliveries.c.attempt_count,
        deliveries.c.cycle_attempt_count,
        case((deliveries.c.state == DeliveryState.PENDING, deliveries.c.due_at)).label("next_attempt_at"),
        deliveries.c.created_at,
        deliveries.c.completed_at,
        deliveries.c.failure_reason,
        destinations.c.state.label("destination_state"),
        case((destination_trouble.c.held_until > _now, destination_trouble.c.held_until)).label(
            "destination_held_until"
        ),
        _void.label("void"),
    )
    .join(messages, messages.c.id == deliveries.c.message_id)
    .join(destinations, destinations.c.id == deliveries.c.destination_id)
    .outerjoin(destination_trouble, destination_trouble.c.destination_id == deliveries.c.destination_id)
)


def _hindrance(found: Row[Any]) -> Reason | None:
    """Why one that failed cannot be replayed; None for one in another state."""
    if found.state != DeliveryState.FAILED:
        return None
    if found.failure_reason in FOR_GOOD:
        return Reason(found.failure_reason)
    if found.void:
        return Reason(found.void)
    return Reason.DESTINATION_DISABLED if found.disabled else None


def _state_after(settlement: Settlement) -> DeliveryState:
    match settlement:
        case Delivered():
            return DeliveryState.DELIVERED
        case Later():
            return DeliveryState.PENDING
        case Failed():
            return DeliveryState.FAILED


def _milliseconds(duration: timedelta | None) -> int | None:
    return None if duration is None else round(duration / timedelta(milliseconds=1))


def _view(row: Row[*tuple[object, ...]]) -> DeliveryView:
    stored = dict(row._mapping)  # noqa: SLF001
    reason = stored["failure_reason"]
    return DeliveryView(
        **stored
        | {
            "state": DeliveryState(stored["state"]),
            "failure_reason": reason and Reason(reason),
            "void": stored["void"] and Reason(str(stored["void"])),
            "destination_state": DestinationState(stored["destination_state"]),
        }
    )


def _attempt(row: Row[*tuple[object, ...]]) -> Attempt:
    stored = row._mapping  # noqa: SLF001
    duration_ms = stored["duration_ms"]
    return Attempt(
        number=stored["number"],
        started_at=stored["started_at"],
        duration=None if duration_ms is None else timedelta(milliseconds=duration_ms),
        outcome=AttemptOutcome(stored["outcome"]),
        response_status=stored["response_status"],
        error=stored["error"],
        response_excerpt=stored["response_excerpt"],
        truncated=stored["truncated"],
        remote_address=stored["remote_address"],
        late=stored["late"],
    )
