"""Rows put straight into the tables: destinations, deliveries that are due, and those that were made long ago."""

import asyncio
from collections.abc import Sequence

import psycopg
from pydantic import SecretStr

from bench.server import Database
from hymical.domain.forms import NewForm
from hymical.domain.ids import FormId
from hymical.entrypoints.bootstrap.resources import Role, open_container
from hymical.entrypoints.bootstrap.settings import Settings

FORM = "bench"
_MESSAGE = "How long does it take to ship about forty pieces, and what is it? " * 5
# about as long as what a form of a few fields makes; § stands for the number
_BODY = (
    '{"type":"submission.received","timestamp":"2026-11-29T12:00:00.000000Z","data":{"form_id":"bench","fields":'
    '{"number":["§"],"name":["Zoe Jones"],"email":["zoe§@example.com"],"message":["' + _MESSAGE + '"]}}}'
)
_FIELDS = '{"number":["§"],"name":["Zoe Jones"],"email":["zoe§@example.com"],"message":["' + _MESSAGE + '"]}'
_TABLES = ("deliveries", "attempts", "messages", "destinations", "submissions")
_FIRST = 20

_ADD_DESTINATIONS = """
INSERT INTO destinations (id, form_id, url, state, secrets, headers, max_in_flight, created_at)
SELECT
    'dst_' || lpad(cast(row_number() OVER () AS text), 26, '0'), %(form)s, url, 'active',
    jsonb_build_array(jsonb_build_object(
        'sealed', 'plain:whsec_' || encode(sha256(cast(url AS bytea)), 'base64'), 'valid_until', NULL
    )),
    '[]', %(max_in_flight)s, now()
FROM unnest(%(urls)s::text[]) AS of (url), generate_series(1, %(copies)s::integer)
"""

_ADD_SUBMISSIONS = """
INSERT INTO submissions (id, form_id, received_at, fields, is_spam, fingerprint)
SELECT
    'sub_' || lpad(cast(nth AS text), 26, '0'), %(form)s, now() - interval '1 day' + nth * interval '1 millisecond',
    cast(replace(%(fields)s, '§', cast(nth AS text)) AS json), FALSE, ''
FROM generate_series(%(first)s::bigint, %(last)s::bigint) AS of (nth)
"""

_ADD_MESSAGES = """
INSERT INTO messages (id, type, submission_id, form_id, body)
SELECT
    'evt_' || %(kind)s || lpad(cast(nth AS text), 22, '0'), 'submission.received', NULL, 'bench',
    cast(replace(%(body)s, '§', cast(nth AS text)) AS bytea)
FROM generate_series(%(first)s::bigint, %(last)s::bigint, %(step)s::bigint) AS of (nth)
"""

_ADD_DELIVERIES = """
INSERT INTO deliveries (
    id, message_id, destination_id, state, attempt_count, cycle_attempt_count, lost_in_a_row,
    due_at, ready, created_at, completed_at
)
SELECT
    'dlv_' || %(kind)s || lpad(cast(nth AS text), 22, '0'),
    'evt_' || %(kind)s || lpad(cast(nth / %(step)s * %(step)s AS text), 22, '0'),
    known.ids[1 + nth %% cardinality(known.ids)],
    CASE WHEN is_due THEN 'pending' ELSE 'delivered' END,
    CASE WHEN is_due THEN 0 ELSE 1 END,
    CASE WHEN is_due THEN 0 ELSE 1 END,
    0,
    CASE WHEN is_due THEN now() - interval '1 hour' + nth * interval '1 microsecond' END,
    is_due,
    now() - interval '1 day',
    CASE WHEN NOT is_due THEN now() - interval '1 day' END
FROM generate_series(%(first)s::bigint, %(last)s::bigint) AS of (nth),
    (SELECT %(kind)s::text = 'due_' AS is_due) AS kind,
    (SELECT array_agg(id ORDER BY id) AS ids FROM destinations) AS known
"""

_ADD_ATTEMPTS = """
INSERT INTO attempts (delivery_id, number, started_at, duration_ms, outcome, response_status, truncated, late)
SELECT
    'dlv_' || %(kind)s || lpad(cast(nth AS text), 22, '0'),
    1, now() - interval '1 day', 12, 'succeeded', 200, FALSE, FALSE
FROM generate_series(%(first)s::bigint, %(last)s::bigint) AS of (nth)
"""


def add_form(database: Database) -> None:
    asyncio.run(_add_form(database))


async def _add_form(database: Database) -> None:
    settings = Settings(database_url=SecretStr(database.url))
    async with open_container(settings, Role.OPERATOR) as container:
        await container.create_form()(NewForm(id=FormId(FORM), name="Bench"))


def add_destinations(
    database: Database, urls: Sequence[str], *, max_in_flight: int = 10, copies: int = 1
) -> None:
    """With a secret each, so that what is sent to them is signed."""
    with psycopg.connect(database.url, autocommit=True) as connection:
        connection.execute(
            _ADD_DESTINATIONS,
            {"form": FORM, "urls": list(urls), "max_in_flight": max_in_flight, "copies": copies},
        )


def add_due(database: Database, count: int, *, behind: int = 0) -> None:
    """Deliveries that are due, each of a message of its own, in turn to every destination, behind so many others."""
    _add(database, "due_", count, step=1, first=_FIRST + behind)


def add_submissions(database: Database, count: int, *, behind: int = 0) -> None:
    """As if posted a day ago, behind so many others; nothing is owed of them."""
    values = {"form": FORM, "fields": _FIELDS, "first": behind + 1, "last": behind + count}
    with psycopg.connect(database.url, autocommit=True) as connection:
        connection.execute(_ADD_SUBMISSIONS, values)


def add_history(database: Database, count: int) -> None:
    """Deliveries that were made at the first attempt, twenty of a message."""
    _add(database, "0old", count, step=20, first=_FIRST)


def clear(database: Database) -> None:
    """Leaves forms, and nothing that was posted or is owed."""
    database.execute(f"TRUNCATE {', '.join(_TABLES)}, destination_trouble")


def settle_down(database: Database) -> None:
    """What autovacuum would come to in time, and a flush of what was loaded."""
    for table in _TABLES:
        database.execute(f"VACUUM ANALYZE {table}")
    database.execute("CHECKPOINT")


def _add(database: Database, kind: str, count: int, *, step: int, first: int) -> None:
    values = {"kind": kind, "body": _BODY, "first": first, "last": first + count - 1, "step": step}
    with psycopg.connect(database.url, autocommit=True) as connection:
        # what refers to them is known to be there
        connection.execute("SET session_replication_role = replica")
        connection.execute(_ADD_MESSAGES, values)
        connection.execute(_ADD_DELIVERIES, values)
        if kind != "due_":
            connection.execute(_ADD_ATTEMPTS, values)
