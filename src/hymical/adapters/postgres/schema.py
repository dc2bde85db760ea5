"""The schema's revision: moving to it, and refusing to run on another."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import create_engine, text
from sqlalchemy.engine import make_url

from hymical.adapters.postgres.errors import translated
from hymical.adapters.postgres.transactions import PostgresTransactions
from hymical.domain.errors import SchemaMismatch

if TYPE_CHECKING:
    from collections.abc import Callable

    from alembic.config import Config

REVISION = "0005"
"""The migration that this build runs on; a test holds it to the newest one."""

# any constant, the same in every build: two that migrate at once take turns
_MIGRATION_LOCK = 4_841_909_770


def migrate(database_url: str) -> None:
    """Brings a database up to this build's revision; of two callers the second waits for the first.

    Raises:
        SchemaMismatch: it is at a revision that this build does not know.
        StorageUnavailable: the database did not answer.
    """
    from alembic import command  # noqa: PLC0415  it takes long to load, and nothing else needs it

    _with_alembic(database_url, lambda config: command.upgrade(config, "head"))


def revert(database_url: str, revision: str) -> None:
    """Takes a database back to an older revision (`base`: to nothing), with whatever that drops."""
    from alembic import command  # noqa: PLC0415

    _with_alembic(database_url, lambda config: command.downgrade(config, revision))


class PostgresSchema:
    """Whether the database is at the revision that this build expects."""

    def __init__(self, transactions: PostgresTransactions) -> None:
        self._transactions = transactions

    async def check(self) -> None:
        """Raises `SchemaMismatch`, or `StorageUnavailable` when the database does not answer."""
        with translated():
            async with self._transactions.connection() as connection:
                known = await connection.scalar(text("SELECT to_regclass('alembic_version') IS NOT NULL"))
                found = (
                    await connection.scalar(text("SELECT version_num FROM alembic_version"))
                    if known
                    else None
                )
        if found != REVISION:
            raise SchemaMismatch(found, REVISION)


def _with_alembic(database_url: str, run: Callable[[Config], None]) -> None:
    from alembic.config import Config  # noqa: PLC0415
    from alembic.migration import MigrationContext  # noqa: PLC0415
    from alembic.script import ScriptDirectory  # noqa: PLC0415

    config = Config()
    config.set_main_option("script_location", "hymical.adapters.postgres:migrations")
    engine = create_engine(make_url(database_url).set(drivername="postgresql+psycopg"))
    try:
        with translated(), engine.connect() as connection:
            connection.execute(text("SELECT pg_advisory_lock(:lock)"), {"lock": _MIGRATION_LOCK})
            connection.commit()
            known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
            found = MigrationContext.configure(connection).get_current_revision()
            connection.commit()
            if found is not None and found not in known:
                raise SchemaMismatch(found, REVISION)
            config.attributes["connection"] = connection
            run(config)
    finally:
        engine.dispose()
