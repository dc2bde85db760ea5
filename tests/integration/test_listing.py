"""A page of submissions costs a bounded look, however many there are and whatever is asked for."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from sqlalchemy.dialects import postgresql

from hymical.adapters.postgres.forms import looked_at
from hymical.domain.ids import FormId, SubmissionId
from hymical.ports.forms import SubmissionFilter, SubmissionPlace
from tests.clocks import START
from tests.database import Databases

DIALECT = postgresql.dialect()  # type: ignore[no-untyped-call]
ROWS, LOOKS = 30_000, 500
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
        connection.execute("ANALYZE submissions")
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
