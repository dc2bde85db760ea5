"""A page costs a bounded look, however many there are and whatever is asked for."""

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from sqlalchemy.dialects import postgresql

from hymical.adapters.postgres.forms import looked_at
from hymical.domain.deliveries import DeliveryState
from hymical.domain.ids import DestinationId, FormId, SubmissionId
from hymical.ports.deliveries import DeliveryFilter
from hymical.ports.forms import SubmissionFilter, SubmissionPlace
from tests.clocks import START
from tests.database import Databases
from tests.site import until
from tests.worlds import World, postgres_world

DIALECT = postgresql.dialect()  # type: ignore[no-untyped-call]
ROWS, LOOKS = 30_000, 500
BUSY = FormId("busy")
MIDDLE = START + timedelta(seconds=ROWS // 2)


@pytest.fixture(scope="module")
def filled_url(databases: Databases) -> Iterator[str]:
    with databases.migrated() as url, psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO forms (id, name, is_active, allowed_origins, limits, created_at)"
            " SELECT form, form, true, '{}', '{}', now() FROM unnest('{busy,quiet}'::text[]) AS form"
        )
        connection.execute(
            "INSERT INTO submissions (id, form_id, received_at, fields, is_spam, fingerprint)"
            " SELECT 'sub_' || lpad(n::text, 8, '0'), CASE n %% 100 WHEN 0 THEN 'quiet' ELSE 'busy' END,"
            " %s + n * interval '1 second', json_build_object('n', json_build_array(n::text)), n %% 1000 = 0, ''"
            " FROM generate_series(1, %s) AS n",
            [START, ROWS],
        )
        connection.execute(
            "INSERT INTO destinations (id, form_id, url, state, secrets, headers, max_in_flight, created_at)"
            " VALUES ('dst_1', 'busy', '', 'active', '[]', '{}', 1, now())"
        )
        connection.execute(
            "INSERT INTO messages (id, type, submission_id, form_id, body)"
            " SELECT replace(id, 'sub', 'evt'), '', id, form_id, '' FROM submissions"
        )
        connection.execute(
            "INSERT INTO deliveries (id, message_id, destination_id, state, attempt_count, cycle_attempt_count,"
            " lost_in_a_row, ready, created_at, completed_at, failure_reason)"
            " SELECT replace(id, 'evt', 'dlv'), id, 'dst_1', CASE WHEN failed THEN 'failed' ELSE 'delivered' END,"
            " 1, 1, 0, false, now(), now(), CASE WHEN failed THEN 'exhausted' END"
            " FROM messages, LATERAL (SELECT right(id, 4) = '0007' AS failed) AS fate"
        )
        # otherwise autovacuum would, and what it looks at would count as a page's
        connection.execute("VACUUM (ANALYZE)")
        yield url


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for below in plan.get("Plans", ()):
        yield from nodes(below)


@pytest.mark.parametrize(
    "which",
    [
        SubmissionFilter(),
        SubmissionFilter(spam=True),
        SubmissionFilter(text="not there"),
        SubmissionFilter(form_id=FormId("quiet")),
        SubmissionFilter(form_id=FormId("busy"), text="not there", spam=True),
        SubmissionFilter(received_before=MIDDLE, text="not there"),
        SubmissionFilter(form_id=FormId("busy"), received_before=MIDDLE),
        SubmissionFilter(received_after=MIDDLE, received_before=MIDDLE + timedelta(seconds=50)),
    ],
)
@pytest.mark.parametrize(
    "behind", [None, SubmissionPlace(received_at=MIDDLE, id=SubmissionId("sub_00015000"))]
)
def test_no_page_reads_more_than_it_may_look_at(
    filled_url: str, which: SubmissionFilter, behind: SubmissionPlace | None
) -> None:
    query = looked_at(which, behind, limit=50, looks=LOOKS).compile(
        dialect=DIALECT, compile_kwargs={"literal_binds": True}
    )
    with psycopg.connect(filled_url) as connection:
        found = connection.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {query}".encode()).fetchall()
    scans = [one for one in nodes(found[0][0][0]["Plan"]) if one.get("Relation Name") == "submissions"]

    assert scans
    assert "Seq Scan" not in {one["Node Type"] for one in scans}
    # a window looks one row ahead
    assert all(one["Actual Rows"] + one.get("Rows Removed by Filter", 0) <= LOOKS + 1 for one in scans)


async def blocks(database_url: str, page: Callable[[World], Awaitable[object]]) -> int:
    """How many blocks of tables and indexes are looked at for a page, by the plans of a running process."""

    def asked(statement: str) -> int:
        with psycopg.connect(database_url) as connection:
            found = connection.execute(statement.encode()).fetchone()
            return int(found[0]) if found else 0

    before = asked(LOOKED_AT)
    async with postgres_world(database_url) as world:
        await page(world)
    # a session tells what it looked at before it is gone
    await until(lambda: asked(SESSIONS) == 0, "the page's session has ended")
    return asked(LOOKED_AT) - before


LOOKED_AT = (
    "SELECT sum(heap_blks_read + heap_blks_hit + coalesce(idx_blks_read + idx_blks_hit, 0))"
    " FROM pg_statio_user_tables"
)
SESSIONS = (
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'tests'"
)


@pytest.mark.parametrize(
    "which",
    [DeliveryFilter(), DeliveryFilter(destination_id=DestinationId("dst_1")), DeliveryFilter(form_id=BUSY)],
)
async def test_the_few_deliveries_that_failed_are_found_without_a_look_at_the_others(
    filled_url: str, which: DeliveryFilter
) -> None:
    few = replace(which, state=DeliveryState.FAILED)

    assert await blocks(filled_url, lambda world: world.history.page(few, before=None, limit=50)) < 100


async def test_a_page_deep_in_a_form_costs_no_look_at_what_is_newer(filled_url: str) -> None:
    deep = SubmissionPlace(received_at=START + timedelta(seconds=5_000), id=SubmissionId("sub_00005000"))

    async def page(world: World) -> object:
        which = SubmissionFilter(form_id=BUSY, received_before=MIDDLE)
        return await world.submissions.page(which, behind=deep, limit=50, looks=60)

    assert await blocks(filled_url, page) < 100
