"""The state machine of a job on PostgreSQL."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import psycopg
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.job_machine import JobMachine
from tests.worlds import World, postgres_world

# a failure is not shrunk here, which would take minutes: what fails in memory too is shrunk there
SETTINGS = settings(
    derandomize=True, deadline=None, max_examples=20, stateful_step_count=25, phases=[Phase.generate]
)


@asynccontextmanager
async def emptied_world(database_url: str) -> AsyncIterator[World]:
    async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as connection:
        await connection.execute("TRUNCATE jobs, paused_queues CASCADE")
    async with postgres_world(database_url) as world:
        yield world


def test_whatever_happens_the_queue_of_jobs_in_postgresql_keeps_its_promises(database_url: str) -> None:
    class PostgresMachine(JobMachine):
        # who of them comes first is chance there; the contracts and the races have tests of it
        repeats_claims_at_once = False

        def opened(self) -> AbstractAsyncContextManager[World]:
            return emptied_world(database_url)

    run_state_machine_as_test(PostgresMachine, settings=SETTINGS)
