"""The bus that carries the progress of jobs from who does them to who watches."""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from hymical.domain.ids import JobId
from hymical.domain.leases import JobLease
from hymical.domain.progress import ProgressEvent, RecordedEvent
from hymical.ports.wakeups import Bell

PAGE = 1_000
"""How many events are read at one time."""


class ProgressBus(Protocol):
    """Events of jobs, numbered from 1 within each, without gaps and in one order for all."""

    async def publish(self, lease: JobLease, events: Sequence[ProgressEvent]) -> None:
        """Records events under the lease, and nudges those who watch.

        Raises:
            JobLost: the lease is not held any more; nothing is recorded.
        """
        ...

    async def since(self, job_id: JobId, number: int, *, limit: int = PAGE) -> Sequence[RecordedEvent]:
        """Those behind `number`, in order, at most `limit`; empty for a job that is not there."""
        ...

    def changes(self, job_id: JobId) -> AbstractAsyncContextManager[Bell]:
        """A bell that rings when events of the job were recorded or it changed its state, anywhere.

        It listens from the moment the block is entered. All blocks of a process share one listener. A ring may
        be lost: whoever waits looks again from time to time.
        """
        ...
