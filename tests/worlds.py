"""All ports over one store, in memory or in PostgreSQL, with a clock that a test moves."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

from sqlalchemy import delete

from hymical.adapters.fernet.cipher import FernetCipher
from hymical.adapters.memory.alerts import MemoryAlertBook
from hymical.adapters.memory.bulk import MemoryBulkQueue
from hymical.adapters.memory.deliveries import MemoryDeliveryHistory, MemoryDeliveryQueue
from hymical.adapters.memory.destinations import MemoryDestinationHealth, MemoryDestinationRepository
from hymical.adapters.memory.doctor import MemoryInspection
from hymical.adapters.memory.exports import MemoryExportStore, MemorySubmissionWalk
from hymical.adapters.memory.forms import MemoryFormRepository, MemorySubmissionRepository
from hymical.adapters.memory.jobs import MemoryJobHistory, MemoryJobQueue
from hymical.adapters.memory.keys import MemoryKeyRepository, MemoryKeyWarnings
from hymical.adapters.memory.limits import MemoryRateLimiter
from hymical.adapters.memory.progress import MemoryProgressBus
from hymical.adapters.memory.retention import MemoryHistorySweep
from hymical.adapters.memory.schedules import MemoryScheduleLedger
from hymical.adapters.memory.sources import MemorySourceKey
from hymical.adapters.memory.store import MemoryStore
from hymical.adapters.memory.transactions import MemoryTransactions, MemoryWakeUps
from hymical.adapters.memory.workers import MemoryWorkerRegistry
from hymical.adapters.postgres.alerts import PostgresAlertBook
from hymical.adapters.postgres.bulk import PostgresBulkQueue
from hymical.adapters.postgres.deliveries import PostgresDeliveryHistory, PostgresDeliveryQueue
from hymical.adapters.postgres.destinations import PostgresDestinationHealth, PostgresDestinationRepository
from hymical.adapters.postgres.doctor import PostgresInspection
from hymical.adapters.postgres.exports import PostgresExportStore, PostgresSubmissionWalk
from hymical.adapters.postgres.forms import PostgresFormRepository, PostgresSubmissionRepository
from hymical.adapters.postgres.jobs import PostgresJobHistory, PostgresJobQueue
from hymical.adapters.postgres.keys import PostgresKeyRepository, PostgresKeyWarnings
from hymical.adapters.postgres.limits import PostgresRateLimiter
from hymical.adapters.postgres.pool import ConnectionPool
from hymical.adapters.postgres.progress import PostgresProgressBus
from hymical.adapters.postgres.retention import PostgresHistorySweep
from hymical.adapters.postgres.schedules import PostgresScheduleLedger
from hymical.adapters.postgres.sources import PostgresSourceKey
from hymical.adapters.postgres.tables import jobs as jobs_table
from hymical.adapters.postgres.transactions import PostgresTransactions
from hymical.adapters.postgres.wakeups import PostgresWakeUps
from hymical.adapters.postgres.workers import PostgresWorkerRegistry
from hymical.domain.deliveries import Delivery, fan_out
from hymical.domain.destinations import Destination
from hymical.domain.errors import AlreadyExists
from hymical.domain.forms import Submission
from hymical.domain.ids import JobId
from hymical.ports.alerts import AlertBook
from hymical.ports.bulk import BulkQueue
from hymical.ports.deliveries import DeliveryHistory, DeliveryQueue
from hymical.ports.destinations import DestinationHealth, DestinationRepository
from hymical.ports.doctor import DatabaseInspection
from hymical.ports.exports import ExportStore, SubmissionWalk
from hymical.ports.forms import Arrival, FormRepository, SubmissionRepository
from hymical.ports.jobs import JobHistory, JobQueue
from hymical.ports.keys import KeyRepository, KeyWarnings
from hymical.ports.limits import RateLimiter
from hymical.ports.progress import ProgressBus
from hymical.ports.retention import HistorySweep
from hymical.ports.schedules import ScheduleLedger
from hymical.ports.sources import SourceKey
from hymical.ports.transactions import Transactions
from hymical.ports.wakeups import Bell, WakeUps
from hymical.ports.workers import WorkerRegistry
from tests.builders import a_message, a_new_destination, a_new_form, a_submission, ids
from tests.clocks import StoppedClock


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    clock: StoppedClock
    transactions: Transactions
    wakeups: WakeUps
    forms: FormRepository
    submissions: SubmissionRepository
    destinations: DestinationRepository
    health: DestinationHealth
    workers: WorkerRegistry
    keys: KeyRepository
    key_warnings: KeyWarnings
    limiter: RateLimiter
    source_key: SourceKey
    ledger: ScheduleLedger
    alerts: AlertBook
    inspection: DatabaseInspection
    queue: DeliveryQueue
    history: DeliveryHistory
    bulk: BulkQueue
    jobs: JobQueue
    job_history: JobHistory
    progress: ProgressBus
    walk: SubmissionWalk
    exports: ExportStore
    sweep: HistorySweep
    delete_job: Callable[[JobId], Awaitable[None]]
    rings_at_first: bool
    """Whether a new bell rings by itself, for what came before it."""

    async def first_ring(self, bell: Bell) -> None:
        """Waits until a new bell listens."""
        if self.rings_at_first:
            await bell.wait(5)

    async def destination(
        self, url: str = "https://example.com/hook", *, max_in_flight: int = 100
    ) -> Destination:
        """A destination of the form `contact`, which is made if it is not there."""
        with suppress(AlreadyExists):
            await self.forms.add(a_new_form())
        return await self.destinations.add(a_new_destination(url=url, max_in_flight=max_in_flight))

    async def stores(self, submissions: Sequence[Submission]) -> None:
        """Submissions without any message."""
        await self.submissions.receive(
            [Arrival(submission=one, repeats_since=one.received_at) for one in submissions]
        )

    async def owes(self, count: int = 1, destination: Destination | None = None) -> Sequence[Delivery]:
        """Submissions whose deliveries are due now, in the order of their ids."""
        to = destination or await self.destination()
        submissions = [a_submission(at=self.clock.now()) for _ in range(count)]
        messages = [a_message(submission) for submission in submissions]
        owed = [
            delivery
            for message in messages
            for delivery in fan_out(message, [to], now=self.clock.now(), new_id=ids.delivery)
        ]
        await self.stores(submissions)
        await self.queue.owe(messages, owed)
        return owed


def memory_world() -> World:
    store, clock = MemoryStore(), StoppedClock()
    queue = MemoryDeliveryQueue(store, clock)

    async def delete_job(job_id: JobId) -> None:
        store.rows.jobs.pop(job_id)
        store.rows.job_events.pop(job_id, None)

    return World(
        clock=clock,
        transactions=MemoryTransactions(store),
        wakeups=MemoryWakeUps(store),
        forms=MemoryFormRepository(store, clock),
        submissions=MemorySubmissionRepository(store),
        destinations=MemoryDestinationRepository(store, clock),
        health=MemoryDestinationHealth(store, clock),
        workers=MemoryWorkerRegistry(store, clock),
        keys=MemoryKeyRepository(store, clock),
        key_warnings=MemoryKeyWarnings(store, clock),
        limiter=MemoryRateLimiter(store, clock),
        source_key=MemorySourceKey(bytes(range(32))),
        ledger=MemoryScheduleLedger(store, clock),
        alerts=MemoryAlertBook(store, clock),
        inspection=MemoryInspection(clock),
        queue=queue,
        history=MemoryDeliveryHistory(store, clock),
        bulk=MemoryBulkQueue(store, queue, clock),
        jobs=MemoryJobQueue(store, clock),
        job_history=MemoryJobHistory(store, clock),
        progress=MemoryProgressBus(store, clock),
        walk=MemorySubmissionWalk(store),
        exports=MemoryExportStore(store, clock),
        sweep=MemoryHistorySweep(store, clock),
        delete_job=delete_job,
        rings_at_first=False,
    )


@asynccontextmanager
async def postgres_world(database_url: str) -> AsyncIterator[World]:
    pool, clock = ConnectionPool(database_url, application_name="tests", size=10), StoppedClock()
    connections, cipher = PostgresTransactions(pool), FernetCipher([])

    async def delete_job(job_id: JobId) -> None:
        async with connections.connection() as connection:
            await connection.execute(delete(jobs_table).where(jobs_table.c.id == job_id))

    try:
        yield World(
            clock=clock,
            transactions=connections,
            wakeups=PostgresWakeUps(database_url),
            forms=PostgresFormRepository(connections, clock, cipher),
            submissions=PostgresSubmissionRepository(connections),
            destinations=PostgresDestinationRepository(connections, clock, cipher),
            health=PostgresDestinationHealth(connections, clock, cipher),
            workers=PostgresWorkerRegistry(connections, clock),
            keys=PostgresKeyRepository(connections, clock),
            key_warnings=PostgresKeyWarnings(connections, clock),
            limiter=PostgresRateLimiter(connections, clock),
            source_key=PostgresSourceKey(connections),
            ledger=PostgresScheduleLedger(connections, clock),
            alerts=PostgresAlertBook(connections, clock),
            inspection=PostgresInspection(connections, clock),
            queue=PostgresDeliveryQueue(connections, clock, cipher),
            history=PostgresDeliveryHistory(connections, clock),
            bulk=PostgresBulkQueue(connections, clock),
            jobs=PostgresJobQueue(connections, clock),
            job_history=PostgresJobHistory(connections, clock),
            progress=PostgresProgressBus(connections, database_url, clock),
            walk=PostgresSubmissionWalk(connections),
            exports=PostgresExportStore(connections, clock),
            sweep=PostgresHistorySweep(connections, clock),
            delete_job=delete_job,
            rings_at_first=True,
        )
    finally:
        await pool.close()
