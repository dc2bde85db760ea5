"""Ownership for a limited time."""

from dataclasses import dataclass
from datetime import datetime

from hymical.domain.ids import DeliveryId, JobId, LeaseToken


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """Proof that its holder may report on one attempt of one delivery.

    `token` is new at each claim; `number` is the attempt that the claim allocated and is never used again,
    but where a crash of PostgreSQL forgot the claim;
    `since` is the database's time of the claim.
    """

    delivery_id: DeliveryId
    token: LeaseToken
    number: int
    since: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class JobLease:
    """Proof that its holder may report on one run of one job; `token` is new at each claim."""

    job_id: JobId
    token: LeaseToken
