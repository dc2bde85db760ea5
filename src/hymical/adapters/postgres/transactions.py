"""The engine, the transaction that the calls of one block share, and the statements that run in it."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from contextvars import ContextVar
from time import monotonic
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import namedtuple_row
from sqlalchemy import event
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DisconnectionError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from hymical.adapters.postgres.errors import translated
from hymical.adapters.postgres.statements import driver_statement
from hymical.domain.errors import HymicalError, StorageUnavailable

# Every statement looks up a few rows by an index. Statistics must not talk the planner out of that: those of a table
# that has just begun to grow say that it is empty, and a plan made then stays for as long as they do.
_PLANS = "-c enable_seqscan=off -c enable_hashjoin=off -c enable_mergejoin=off -c jit=off"

# A process that stands still, or whose machine is gone, must not keep its locks: others would wait for hours.
_LIMITS = "-c idle_in_transaction_session_timeout=15s"
# A server that is gone without a word is noticed within half a minute.
_ALIVE = {"keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3, "tcp_user_timeout": 30_000}


def create_engine(database_url: str, *, application_name: str, pool_size: int) -> AsyncEngine:
    """An engine that connects when it is first used. `database_url` is `postgresql://…`."""
    url = make_url(database_url)
    given = url.query.get("options", "")
    return create_async_engine(
        url.set(drivername="postgresql+psycopg"),
        pool_size=pool_size,
        max_overflow=0,
        pool_timeout=10,
        pool_pre_ping=False,
        # transactions are begun and ended by the driver's own calls: nothing is open when a connection goes back
        isolation_level="AUTOCOMMIT",
        pool_reset_on_return=None,
        hide_parameters=True,
        connect_args={
            "application_name": application_name,
            "connect_timeout": 5,
            "options": f"{_PLANS} {_LIMITS} {given}",
            **{name: value for name, value in _ALIVE.items() if name not in url.query},
        },
    )


class PostgresTransactions:
    """The port `Transactions`; adapters of this folder get their connection here, inside a block or not."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine
        self._broke_at = 0.0
        event.listen(engine.sync_engine, "connect", _note_its_age)
        event.listen(engine.sync_engine, "checkout", self._refuse_older_than_the_break)
        self._open: ContextVar[AsyncConnection | None] = ContextVar("open_transaction", default=None)

    @asynccontextmanager
    async def begin(self) -> AsyncIterator[None]:
        if self._open.get() is not None:
            raise RuntimeError("a transaction is open in this task already")
        inside: BaseException | None = None
        try:
            with translated():
                async with self._out_of_the_pool() as connection, _driver_of(connection).transaction():
                    token = self._open.set(connection)
                    try:
                        yield
                    except BaseException as error:
                        inside = error
                        raise
                    finally:
                        self._open.reset(token)
        except StorageUnavailable as unavailable:
            if inside is not None and unavailable.__cause__ is inside:
                # what the block does besides may fail as a driver does: an OSError of its own stays one
                raise inside from None
            raise

    @asynccontextmanager
    async def together(self) -> AsyncIterator[AsyncConnection]:
        """The connection of the open transaction, or of one that lasts for this block."""
        if self._open.get() is not None:
            async with self.connection() as connection:
                yield connection
            return
        async with self.begin(), self.connection() as connection:
            yield connection

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[AsyncConnection]:
        """The connection of the open transaction; without one, a connection that commits each statement."""
        connection = self._open.get()
        if connection is not None:
            yield connection
            return
        async with self._out_of_the_pool() as connection:
            yield connection

    async def run(
        self,
        name: str,
        parameters: Mapping[str, Any] | None = None,
        *,
        constraints: Mapping[str, HymicalError] | None = None,
    ) -> list[Any]:
        """Carries out `sql/{name}.sql` in the open transaction, or by itself; its rows have columns as attributes.

        By the driver's own calls: SQLAlchemy's cost several times what the statement does (docs/decisions/0013).
        `constraints` says what the violation of a constraint means, by its name.

        Raises:
            StorageUnavailable: the database did not answer, or broke off.
        """
        with translated(constraints):
            async with self.connection() as connection:
                cursor = _driver_of(connection).cursor(row_factory=namedtuple_row)
                await cursor.execute(driver_statement(name).encode(), parameters)
                return await cursor.fetchall() if cursor.description else []

    @asynccontextmanager
    async def _out_of_the_pool(self) -> AsyncIterator[AsyncConnection]:
        """One that goes back as it was, or not at all."""
        async with self._engine.connect() as connection:
            driver = _driver_of(connection)
            try:
                yield connection
            finally:
                if driver.closed:
                    # whatever was connected before is as dead, and would only fail in its turn
                    self._broke_at = monotonic()
                if (
                    not connection.invalidated
                    and driver.info.transaction_status is not TransactionStatus.IDLE
                ):
                    await connection.invalidate()

    def _refuse_older_than_the_break(self, _driver: object, record: Any, _proxy: object) -> None:  # noqa: ANN401
        if record.info["connected_at"] < self._broke_at:
            raise DisconnectionError


def _note_its_age(_driver: object, record: Any) -> None:  # noqa: ANN401  the pool's own
    record.info["connected_at"] = monotonic()


def _driver_of(connection: AsyncConnection) -> psycopg.AsyncConnection[Any]:
    shared = connection.sync_connection
    assert shared is not None  # noqa: S101  it is connected
    driver: psycopg.AsyncConnection[Any] = shared.connection.driver_connection  # type: ignore[assignment]
    return driver
