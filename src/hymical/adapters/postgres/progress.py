"""The progress of jobs in PostgreSQL: rows are what is told, notifications only say that there are some."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from sqlalchemy import select

from hymical.adapters.postgres.errors import translated
from hymical.adapters.postgres.listening import listening
from hymical.adapters.postgres.tables import job_events
from hymical.adapters.postgres.transactions import PostgresTransactions
from hymical.domain.errors import JobLost
from hymical.domain.ids import JobId
from hymical.domain.leases import JobLease
from hymical.domain.progress import ProgressEvent, RecordedEvent, StepStatus
from hymical.ports.clock import Clock
from hymical.ports.progress import PAGE
from hymical.ports.wakeups import Bell

_CHANNEL = "hymical_job_events"
_TO_LISTEN_SECONDS = 2.0


class PostgresProgressBus:
    """All who watch share one listening connection, which is closed `linger` seconds after the last has left."""

    def __init__(
        self, transactions: PostgresTransactions, database_url: str, clock: Clock, *, linger: float = 5.0
    ) -> None:
        self._transactions = transactions
        self._database_url = database_url
        self._clock = clock
        self._linger = linger
        self._bells: dict[str, set[Bell]] = {}
        self._tried = asyncio.Event()
        self._left = asyncio.Event()
        self._listening: asyncio.Task[None] | None = None

    async def publish(self, lease: JobLease, events: Sequence[ProgressEvent]) -> None:
        parameters = {
            "now": self._clock.pinned(),
            "job_id": lease.job_id,
            "token": lease.token,
            "count": len(events),
            "steps": [event.step for event in events],
            "statuses": [event.status.value for event in events],
            "messages": [None if event.message is None else json.dumps(event.message) for event in events],
        }
        if not await self._transactions.run("publish_events", parameters):
            raise JobLost(lease.job_id)

    async def since(self, job_id: JobId, number: int, *, limit: int = PAGE) -> Sequence[RecordedEvent]:
        query = (
            select(job_events)
            .where(job_events.c.job_id == job_id, job_events.c.number > number)
            .order_by(job_events.c.number)
            .limit(limit)
        )
        with translated():
            async with self._transactions.connection() as connection:
                rows = await connection.execute(query)
                return [
                    RecordedEvent(
                        number=row.number,
                        at=row.at,
                        event=ProgressEvent(
                            job_id=job_id, step=row.step, status=StepStatus(row.status), message=row.message
                        ),
                    )
                    for row in rows
                ]

    @asynccontextmanager
    async def changes(self, job_id: JobId) -> AsyncIterator[Bell]:
        bell = Bell()
        self._bells.setdefault(job_id, set()).add(bell)
        try:
            await self._listens()
            yield bell
        finally:
            self._bells[job_id].discard(bell)
            if not self._bells[job_id]:
                del self._bells[job_id]
            if not self._bells:
                self._left.set()

    async def _listens(self) -> None:
        """Returns once LISTEN is in force; where the database is away, without."""
        if self._listening is None or self._listening.done():
            self._tried = asyncio.Event()
            self._listening = asyncio.create_task(self._listen(self._tried))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_TO_LISTEN_SECONDS):
                await self._tried.wait()

    async def _listen(self, tried: asyncio.Event) -> None:
        async with listening(self._database_url, _CHANNEL, self._hear) as first_try:
            await first_try.wait()
            tried.set()
            while self._bells or self._left.is_set():
                await self._left.wait()
                self._left.clear()
                await asyncio.sleep(self._linger)
            # whoever comes while the connection is being closed needs another
            self._listening = None

    def _hear(self, job_id: str | None) -> None:
        rung = self._bells.values() if job_id is None else [self._bells.get(job_id, set())]
        for bells in rung:
            for bell in bells:
                bell.ring()
