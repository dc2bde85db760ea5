"""The transaction that the calls of one block share, and the statements that run in it."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection

from hymical.adapters.postgres.errors import translated
from hymical.adapters.postgres.pool import ConnectionPool, PooledConnection
from hymical.adapters.postgres.statements import driver_statement
from hymical.domain.errors import HymicalError, StorageUnavailable


@dataclass(slots=True)
class _Block:
    """Where a transaction runs; a task that was begun inside may outlive it, and is outside of it from then on."""

    pooled: PooledConnection | None


class PostgresTransactions:
    """The port `Transactions`; adapters of this folder get their connection here, inside a block or not."""

    def __init__(self, pool: ConnectionPool) -> None:
        self._pool = pool
        self._block: ContextVar[_Block | None] = ContextVar("open_transaction", default=None)

    @asynccontextmanager
    async def begin(self) -> AsyncIterator[None]:
        if self._open() is not None:
            raise RuntimeError("a transaction is open in this task already")
        inside: BaseException | None = None
        try:
            with translated():
                async with self._pool.one() as pooled, pooled.driver.transaction():
                    block = _Block(pooled)
                    token = self._block.set(block)
                    try:
                        yield
                    except BaseException as error:
                        inside = error
                        raise
                    finally:
                        block.pooled = None
                        self._block.reset(token)
        except StorageUnavailable as unavailable:
            if inside is not None and unavailable.__cause__ is inside:
                # what the block does besides may fail as a driver does: an OSError of its own stays one
                raise inside from None
            raise

    @asynccontextmanager
    async def together(self) -> AsyncIterator[AsyncConnection]:
        """The connection of the open transaction, or of one that lasts for this block."""
        if self._open() is not None:
            async with self.connection() as connection:
                yield connection
            return
        async with self.begin(), self.connection() as connection:
            yield connection

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[AsyncConnection]:
        """The connection of the open transaction; without one, a connection that commits each statement."""
        pooled = self._open()
        if pooled is not None:
            yield pooled.connection
            return
        async with self._pool.one() as pooled:
            yield pooled.connection

    async def run(
        self,
        name: str,
        parameters: Mapping[str, Any] | None = None,
        *,
        constraints: Mapping[str, HymicalError] | None = None,
    ) -> list[Any]:
        """Carries out `sql/{name}.sql` in the open transaction, or by itself; its rows have columns as attributes.

        By the driver's own calls: SQLAlchemy's cost several times what the statement does (docs/decisions/0013, 14).
        `constraints` says what the violation of a constraint means, by its name.

        Raises:
            StorageUnavailable: the database did not answer, or broke off.
        """
        with translated(constraints):
            pooled = self._open()
            if pooled is not None:
                return await _carried_out(pooled, name, parameters)
            pooled = await self._pool.take()
            try:
                return await _carried_out(pooled, name, parameters)
            finally:
                await self._pool.give_back(pooled)

    def _open(self) -> PooledConnection | None:
        block = self._block.get()
        return None if block is None else block.pooled


async def _carried_out(
    pooled: PooledConnection, name: str, parameters: Mapping[str, Any] | None
) -> list[Any]:
    statement, names = driver_statement(name)
    values = [parameters[one] for one in names] if parameters else ()
    return await pooled.driver.run(name.encode(), statement, values)
