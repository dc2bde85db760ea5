"""Replays and back-fills by the thousand in PostgreSQL."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from hymical.adapters.postgres.forms import submission_of
from hymical.adapters.postgres.transactions import PostgresTransactions
from hymical.domain.bulk import Extent, FailedDeliveries, PastSubmissions, Step
from hymical.domain.ids import DestinationId, FormId
from hymical.ports.bulk import Past
from hymical.ports.clock import Clock


class PostgresBulkQueue:
    def __init__(self, transactions: PostgresTransactions, clock: Clock) -> None:
        self._transactions = transactions
        self._clock = clock

    async def failed(self, which: FailedDeliveries, *, before: datetime, after: str, limit: int) -> Extent:
        return await self._extent("count_failed", _failed(which, before, after) | {"limit": limit + 1})

    async def replay(self, which: FailedDeliveries, *, before: datetime, after: str, limit: int) -> Step:
        parameters = _failed(which, before, after) | {"limit": limit, "now": self._clock.pinned()}
        found = await self._transactions.run("replay_many", parameters)
        return Step(
            last=max((row.last for row in found), default=""),
            sent=sum(row.number for row in found if row.hindrance is None),
            skipped={row.hindrance: row.number for row in found if row.hindrance is not None},
            more=sum(row.looked_at for row in found) == limit,
        )

    async def unowed(self, which: PastSubmissions, *, before: datetime, after: str, limit: int) -> Extent:
        return await self._extent("count_unowed", _past(which, before, after) | {"limit": limit + 1})

    async def past(
        self, which: PastSubmissions, *, before: datetime, after: str, limit: int
    ) -> Sequence[Past]:
        parameters = _past(which, before, after) | {"limit": limit}
        return [
            Past(submission=submission_of(row), message_id=row.message_id, owed=row.owed)
            for row in await self._transactions.run("past_submissions", parameters)
        ]

    async def waiting(
        self, *, form_id: FormId | None, destination_id: DestinationId | None, limit: int
    ) -> int:
        parameters = {"form_id": form_id, "destination_id": destination_id, "limit": limit + 1}
        (found,) = await self._transactions.run("count_waiting", parameters)
        return int(found.waiting)

    async def _extent(self, name: str, parameters: dict[str, Any]) -> Extent:
        (found,) = await self._transactions.run(name, parameters)
        return Extent(deliveries=found.deliveries, destinations=found.destinations)


def _failed(which: FailedDeliveries, before: datetime, after: str) -> dict[str, Any]:
    return {
        "form_id": which.form_id,
        "destination_id": which.destination_id,
        "submission_id": which.submission_id,
        "reason": which.reason,
        "failed_after": which.failed_after,
        "before": before,
        "after": after,
    }


def _past(which: PastSubmissions, before: datetime, after: str) -> dict[str, Any]:
    after_at, _, after_id = after.partition(" ")
    return {
        "destination_id": which.destination_id,
        "received_after": which.received_after,
        "before": before,
        # what stands before every other is no instant in Python
        "after_at": after_at or "-infinity",
        "after_id": after_id,
    }
