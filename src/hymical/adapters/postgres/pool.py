"""A process's connections to one database: opened as they are needed, and kept."""

import asyncio
import select
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import monotonic

from psycopg.pq import TransactionStatus
from sqlalchemy.engine import make_url
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine
from sqlalchemy.pool import NullPool

from hymical.adapters.postgres.driver import Connection
from hymical.domain.errors import StorageUnavailable

# Every statement looks up a few rows by an index. Statistics must not talk the planner out of that: those of a table
# that has just begun to grow say that it is empty, and a plan made then stays for as long as they do.
# Nor may the number of values in a parameter: it had a plan made anew each time, which took longer than the look.
# A generic plan takes any LIMIT for a tenth of what there is, for which it would start processes to help with a page.
PLANS = (
    "-c enable_seqscan=off -c enable_hashjoin=off -c enable_mergejoin=off -c jit=off"
    " -c plan_cache_mode=force_generic_plan -c max_parallel_workers_per_gather=0"
)

# A process that stands still, or whose machine is gone, must not keep its locks: others would wait for hours.
_LIMITS = "-c idle_in_transaction_session_timeout=15s"
# A server that is gone without a word is noticed within half a minute.
_ALIVE = {"keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3, "tcp_user_timeout": 30_000}
_PATIENCE_SECONDS = 10.0


class PooledConnection:
    """One connection, as SQLAlchemy and as the driver know it."""

    def __init__(self, connection: AsyncConnection) -> None:
        shared = connection.sync_connection
        assert shared is not None  # noqa: S101  it is connected
        self.connection = connection
        self.driver: Connection = shared.connection.driver_connection  # type: ignore[assignment]
        self.connected_at = monotonic()
        self._incoming = select.poll()
        self._incoming.register(self.driver.fileno(), select.POLLIN)

    @property
    def is_clean(self) -> bool:
        return self.driver.pgconn.transaction_status == TransactionStatus.IDLE

    @property
    def is_quiet(self) -> bool:
        """A server says nothing to a session that asks nothing, but that it ends."""
        return not self._incoming.poll(0)

    async def close(self) -> None:
        await self.connection.invalidate()
        await self.connection.close()


class ConnectionPool:
    """At most `size` connections at a time, in autocommit; the one that was used last is lent first.

    SQLAlchemy's own pool costs more than most statements do (docs/decisions/0014). `database_url` is
    `postgresql://…`; nothing is connected before it is needed.
    """

    def __init__(self, database_url: str, *, application_name: str, size: int) -> None:
        url = make_url(database_url)
        given = url.query.get("options", "")
        self._engine = create_async_engine(
            url.set(drivername="postgresql+psycopg"),
            poolclass=NullPool,
            # transactions are begun and ended by the driver's own calls: nothing is open when a connection goes back
            isolation_level="AUTOCOMMIT",
            hide_parameters=True,
            connect_args={
                "async_creator_fn": Connection.connect,
                # at each rollback it would forget what is prepared, also what `Connection.run` has prepared
                "prepare_threshold": None,
                "application_name": application_name,
                "connect_timeout": 5,
                "options": f"{PLANS} {_LIMITS} {given}",
                **{name: value for name, value in _ALIVE.items() if name not in url.query},
            },
        )
        self._room = asyncio.Semaphore(size)
        self._idle: deque[PooledConnection] = deque()
        self._broke_at = 0.0

    @asynccontextmanager
    async def one(self) -> AsyncIterator[PooledConnection]:
        """One for as long as the block is open. Raises `StorageUnavailable`, as `take` does."""
        pooled = await self.take()
        try:
            yield pooled
        finally:
            await self.give_back(pooled)

    async def take(self) -> PooledConnection:
        """One that is to be given back.

        Raises:
            StorageUnavailable: all are in use, and none came back in time.
        """
        if self._room.locked():
            await self._wait_for_room()
        else:
            await self._room.acquire()
        try:
            return await self._kept() or PooledConnection(await self._engine.connect())
        except BaseException:
            self._room.release()
            raise

    async def give_back(self, pooled: PooledConnection) -> None:
        """It is kept as it was when it was taken, or not at all."""
        try:
            if pooled.driver.closed:
                # whatever was connected before is as dead, and would only fail in its turn
                self._broke_at = monotonic()
            if pooled.is_clean:
                self._idle.append(pooled)
            else:
                await pooled.close()
        finally:
            self._room.release()

    async def close(self) -> None:
        """Closes what is not in use."""
        while self._idle:
            await self._idle.pop().close()
        await self._engine.dispose()

    async def _wait_for_room(self) -> None:
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                await self._room.acquire()
        except TimeoutError:
            raise StorageUnavailable("TimeoutError", said="every connection is in use") from None

    async def _kept(self) -> PooledConnection | None:
        while self._idle:
            pooled = self._idle.pop()
            if pooled.connected_at >= self._broke_at and pooled.is_quiet:
                return pooled
            await pooled.close()
        return None
