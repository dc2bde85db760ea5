"""The migrations: up, down, up again, and what they make."""

import subprocess
import sys
from typing import Any

import psycopg
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine
from sqlalchemy.engine import make_url

from hymical.adapters.postgres.schema import REVISION, migrate, revert
from hymical.adapters.postgres.tables import metadata
from tests.database import Databases

# whatever makes up the schema, in words that do not depend on how it came about
CATALOGUE = """
SELECT 'column', table_name, column_name,
       concat_ws(' ', data_type, character_maximum_length, collation_name, is_nullable, column_default)
FROM information_schema.columns WHERE table_schema = 'public' AND table_name <> 'alembic_version'
UNION ALL
SELECT 'constraint', conrelid::regclass::text, conname, pg_get_constraintdef(oid)
FROM pg_constraint WHERE connamespace = 'public'::regnamespace AND conrelid::regclass::text <> 'alembic_version'
UNION ALL
SELECT 'index', tablename, indexname, indexdef
FROM pg_indexes WHERE schemaname = 'public' AND tablename <> 'alembic_version'
ORDER BY 1, 2, 3
"""


def catalogue(database_url: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(database_url) as connection:
        return connection.execute(CATALOGUE.encode()).fetchall()


def driver_url(database_url: str) -> Any:
    return make_url(database_url).set(drivername="postgresql+psycopg")


def test_up_down_and_up_again_leads_to_the_same_schema(empty_database_url: str) -> None:
    migrate(empty_database_url)
    first = catalogue(empty_database_url)
    assert first

    revert(empty_database_url, "base")
    assert catalogue(empty_database_url) == []

    migrate(empty_database_url)
    assert catalogue(empty_database_url) == first


def test_alembic_finds_nothing_to_add_to_the_migrated_schema(database_url: str) -> None:
    engine = create_engine(driver_url(database_url))
    try:
        with engine.connect() as connection:
            context = MigrationContext.configure(connection, opts={"compare_server_default": True})
            assert compare_metadata(context, metadata) == []
    finally:
        engine.dispose()


def test_the_migrated_schema_is_the_one_that_the_tables_describe(
    database_url: str, databases: Databases
) -> None:
    # constraints and partial indexes are what alembic does not compare
    with databases.empty() as described:
        engine = create_engine(driver_url(described))
        metadata.create_all(engine)
        engine.dispose()
        assert catalogue(database_url) == catalogue(described)


def test_the_revision_that_this_build_expects_is_the_newest_migration() -> None:
    config = Config()
    config.set_main_option("script_location", "hymical.adapters.postgres:migrations")
    assert ScriptDirectory.from_config(config).get_heads() == [REVISION]


def test_two_that_migrate_at_once_take_turns(empty_database_url: str) -> None:
    code = "import sys; from hymical.adapters.postgres.schema import migrate; migrate(sys.argv[1])"
    both = [
        subprocess.Popen(
            [sys.executable, "-c", code, empty_database_url], stderr=subprocess.PIPE, encoding="utf-8"
        )
        for _ in range(2)
    ]
    assert [(one.communicate(timeout=30)[1], one.returncode) for one in both] == [("", 0)] * 2
    assert catalogue(empty_database_url)
