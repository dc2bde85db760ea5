"""The queue of deliveries and its history in PostgreSQL."""

import json
import math
from collections import Counter
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import DateTime, Row, bindparam, case, func, literal, select

from hymical.adapters.postgres.errors import translated
from hymical.adapters.postgres.floors import BEGINNING, FULL_LOOK_EVERY, UNSETTLED, Floors, keep
from hymical.adapters.postgres.rows import DestinationRows
from hymical.adapters.postgres.statements import as_json, in_plain_text
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
    spends_allowance,
)
from hymical.domain.destinations import Destination, DestinationState
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

_PROMOTED_AT_MOST = 1_000
_SLACK_SECONDS = 0.001
_MILLISECOND = timedelta(milliseconds=1)


class PostgresDeliveryQueue:
    def __init__(self, transactions: PostgresTransactions, clock: Clock, cipher: SecretCipher) -> None:
        self._transactions = transactions
        self._clock = clock
        self._rows = DestinationRows(cipher)
        self._after = ""
        self._floors = Floors()
        self._known: dict[str, tuple[object, Destination]] = {}
        self._looked, self._comes_due = -math.inf, math.inf
        self._promoted_until = BEGINNING

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

    async def claim(self, *, limit: int, lease: timedelta, making_room: Sequence[Lease] = ()) -> ClaimedBatch:
        looked = self._clock.monotonic()
        await self._promote(looked)
        parameters = {
            "now": self._clock.pinned(),
            "stretches": as_json(self._floors.stretches(self._after, limit, looked)),
            "limit": limit,
            "lease": lease,
            # as text: the driver takes six times as long for a list of them
            "making_room": f"{{{','.join(one.token for one in making_room)}}}",
        }
        rows = await self._transactions.run("claim", parameters)
        lanes = {row.destination_id: row for row in rows if row.id is None}
        taken = [row for row in rows if row.id is not None]
        # the next claim goes on behind these, so that every destination has its turn
        self._after = next(reversed(lanes)) if len(lanes) == limit else ""
        self._floors.note(lanes, taken, looked)
        if taken:
            self._note_due(lease)
        destinations = {name: self._destination(lane) for name, lane in lanes.items() if lane.locked}
        number = Counter(row.destination_id for row in taken)
        return ClaimedBatch(
            deliveries=[_claimed(row, destinations[row.destination_id]) for row in taken],
            # where one has taken what it has room for, nothing more is to be had before something of it ends
            more=len(lanes) == limit
            or any(
                lane.stranded is None
                and (not lane.locked or number[lane.destination_id] == lane.share < lane.room)
                for lane in lanes.values()
            ),
            rooms={DestinationId(lane.destination_id): lane.room for lane in lanes.values() if lane.locked},
            stranded=[
                (DestinationId(lane.destination_id), Reason(lane.stranded))
                for lane in lanes.values()
                if lane.stranded
            ],
        )

    async def _promote(self, looked: float) -> None:
        """Moves over what has come due, at each full look and when a retry that this process knows of comes due."""
        in_full = looked - self._looked >= FULL_LOOK_EVERY
        if not in_full and looked < self._comes_due:
            return
        parameters = {
            "now": self._clock.pinned(),
            "floor": BEGINNING if in_full else self._promoted_until,
            "ahead": timedelta(seconds=FULL_LOOK_EVERY),
            "limit": _PROMOTED_AT_MOST,
        }
        rows = await self._transactions.run("promote", parameters)
        promoted = [row.destination_id for row in rows if row.destination_id is not None]
        self._floors.forget(promoted)
        if len(promoted) < _PROMOTED_AT_MOST:
            self._comes_due, self._promoted_until = math.inf, rows[0].now - UNSETTLED
            if rows[0].wait is not None:
                self._note_due(rows[0].wait)
            if in_full:
                self._looked = looked

    def _destination(self, lane: Any) -> Destination:  # noqa: ANN401  the columns of claim.sql
        """Read anew only when it has changed: opening its secrets takes longer than all else."""
        stored = (lane.form_id, lane.url, lane.state, lane.secrets, lane.headers, lane.max_in_flight)
        known = self._known.get(lane.destination_id)
        if known is not None and known[0] == stored:
            return known[1]
        columns = lane._asdict() | {
            "id": lane.destination_id,
            "secrets": json.loads(lane.secrets),
            "headers": json.loads(lane.headers),
        }
        destination = self._rows.destination(columns)
        keep(self._known, lane.destination_id, (stored, destination))
        return destination

    async def settle(self, settled: Sequence[Settled], *, unless_troubled: bool = False) -> SettleReport:
        # in one order everywhere, so that two batches that share a delivery do not wait for each other
        ordered = sorted(settled, key=lambda one: one.lease.delivery_id)
        parameters = {
            "now": self._clock.pinned(),
            "batch": as_json([_reported(nth, one) for nth, one in enumerate(ordered)]),
            "unless_troubled": unless_troubled,
        }
        rows = await self._transactions.run("settle", parameters)
        for one in settled:
            if isinstance(one.settlement, Later):
                self._note_due(one.settlement.delay)
        # what is not among them was settled, at destinations that are not in trouble
        verdicts = {ordered[row.nth].lease.token: Verdict(row.verdict) for row in rows}
        overtaken = [ordered[row.nth].lease.delivery_id for row in rows if row.verdict == Verdict.OVERTAKEN]
        unwanted = await self._withdrawn(overtaken) if overtaken else frozenset()
        return SettleReport(
            verdicts=[
                Verdict.WITHDRAWN
                if one.lease.delivery_id in unwanted
                else verdicts.get(one.lease.token, Verdict.SETTLED)
                for one in settled
            ],
            troubled={ordered[row.nth].claimed.destination.id for row in rows if row.troubled},
        )

    def _note_due(self, wait: timedelta) -> None:
        self._comes_due = min(
            self._comes_due, self._clock.monotonic() + wait.total_seconds() - _SLACK_SECONDS
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


def _claimed(row: Any, destination: Destination) -> ClaimedDelivery:  # noqa: ANN401  the columns of claim.sql
    lease = Lease(
        delivery_id=row.id, token=LeaseToken(row.lease_token), number=row.attempt_count, since=row.lease_since
    )
    message_id = MessageId(row.message_id)
    return ClaimedDelivery(
        lease=lease,
        delivery=Delivery(
            id=row.id,
            message_id=message_id,
            destination_id=destination.id,
            state=DeliveryState.PROCESSING,
            attempt_count=row.attempt_count,
            cycle_attempt_count=row.cycle_attempt_count,
            lost_in_a_row=row.lost_in_a_row,
            due_at=row.due_at,
            lease=lease,
            created_at=row.created_at,
        ),
        message=Message(
            id=message_id,
            type=row.type,
            submission_id=row.submission_id,
            form_id=row.form_id,
            body=row.body,
        ),
        destination=destination,
        lost=row.lost,
    )


def _reported(nth: int, one: Settled) -> dict[str, object]:
    lease, settlement, attempt = one.lease, one.settlement, one.attempt
    report: dict[str, object] = {
        "nth": nth,
        "id": lease.delivery_id,
        "token": lease.token,
        "number": lease.number,
        "state": _state_after(settlement),
        "spends": int(spends_allowance(settlement)),
    }
    if isinstance(settlement, Later):
        report["delay"] = f"{settlement.delay // timedelta(microseconds=1)} us"
    if isinstance(settlement, Failed):
        report["failure_reason"] = settlement.reason
    if attempt is not None:
        report |= {
            "started_at": attempt.started_at,
            "duration_ms": _milliseconds(attempt.duration),
            "outcome": attempt.outcome,
            "response_status": attempt.response_status,
            "error": attempt.error,
            "response_excerpt": attempt.response_excerpt,
            "truncated": attempt.truncated,
            "remote_address": attempt.remote_address,
        }
    return report


def _state_after(settlement: Settlement) -> DeliveryState:
    match settlement:
        case Delivered():
            return DeliveryState.DELIVERED
        case Later():
            return DeliveryState.PENDING
        case Failed():
            return DeliveryState.FAILED


def _milliseconds(duration: timedelta | None) -> int | None:
    return None if duration is None else round(duration / _MILLISECOND)


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
