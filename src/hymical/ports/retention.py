"""What removes history."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from hymical.domain.retention import Kind


@dataclass(frozen=True, slots=True, kw_only=True)
class SweptBatch:
    """`end` is where the next batch goes on, None once nothing that is left is old enough."""

    removed: int
    end: str | None


class HistorySweep(Protocol):
    """Removes what is over and old enough, in batches that wait for nobody and that nobody waits for long.

    A delivery that is pending, processing or failed is never removed, nor is its submission. A submission goes with
    its values wherever they are; a delivery with its attempts, and with its message unless that is another's or its
    submission's; a job with its events and its file; a file, when its time is up, without its job.
    """

    async def sweep(self, kind: Kind, *, age: timedelta, behind: str, looks: int) -> SweptBatch:
        """One batch, in a transaction of its own: of those behind `behind`, the first `looks` are looked at."""
        ...
