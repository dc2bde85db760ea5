"""Claiming and settling as a worker does it, without HTTP: what the queue alone does."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta

from pydantic import SecretStr

from hymical.application.deliveries import ClaimDue, SettleFinished
from hymical.domain.deliveries import Attempt, Delivered
from hymical.domain.outcomes import AttemptOutcome
from hymical.entrypoints.bootstrap.resources import Role, open_container
from hymical.entrypoints.bootstrap.settings import Settings
from hymical.ports.deliveries import ClaimedDelivery, Settled


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    claim_due: ClaimDue
    settle: SettleFinished

    async def claim_and_settle(self, limit: int) -> tuple[int, float]:
        """How many were claimed, all of them delivered at once, and the seconds that the claim took."""
        began = time.perf_counter()
        claim = await self.claim_due(limit)
        took = time.perf_counter() - began
        if claim.to_send:
            await self.settle([_delivered(one) for one in claim.to_send])
        return len(claim.to_send), took


@asynccontextmanager
async def queue(database_url: str) -> AsyncIterator[Queue]:
    """The one that a worker's container holds."""
    settings = Settings(database_url=SecretStr(database_url))
    async with open_container(settings, Role.OPERATOR) as container:
        yield Queue(claim_due=container.claim_due(), settle=container.settle_finished())


def _delivered(claimed: ClaimedDelivery) -> Settled:
    attempt = Attempt(
        number=claimed.lease.number,
        started_at=claimed.lease.since,
        duration=timedelta(milliseconds=12),
        outcome=AttemptOutcome.SUCCEEDED,
        response_status=200,
        error=None,
        response_excerpt=None,
        truncated=False,
        remote_address="127.0.0.1",
        late=False,
    )
    return Settled(claimed=claimed, settlement=Delivered(), attempt=attempt)
