"""Exports over HTTP by real workers: killed and resumed, erased while being written, at a bounded cost."""

import asyncio
import csv
import io
import json
from typing import Any

import httpx
import pytest

from hymical.adapters.postgres.exports import walked
from hymical.domain.ids import FormId, SubmissionId
from hymical.ports.exports import ExportChunk, WalkPlace
from hymical.ports.forms import SubmissionFilter
from tests.builders import a_new_form, a_new_job, a_submission
from tests.clocks import START
from tests.integration.test_queue_races import held_open, plan, waits_for_a_lock
from tests.site import Site, until
from tests.worlds import World, postgres_world

MANY = 30_000
_FILL = """
INSERT INTO submissions (id, form_id, received_at, fields, is_spam, fingerprint)
SELECT
    'sub_' || lpad(n::text, 12, '0'), %s, now() - interval '1 day' + n * interval '1 ms',
    json_build_object('number', ARRAY[n::text], 'only ' || n %% 5, ARRAY['=x, "y"', repeat('z', n %% 300)]),
    n %% 10 = 0, ''
FROM generate_series(1, %s) AS n
"""


def fill(site: Site, count: int = MANY, form_id: str = "contact") -> None:
    site.execute(_FILL, form_id, count)


def start(site: Site, **wanted: object) -> str:
    answer = site.management.post("/exports", json={"form_id": "contact", "format": "csv", **wanted})
    assert answer.status_code == 202, answer.text
    assert (answer.json()["queue"], answer.json()["type"]) == ("exports", "export_submissions")
    return str(answer.json()["id"])


async def state(site: Site, job_id: str, *wanted: str) -> dict[str, Any]:
    await until(lambda: site.read(f"/jobs/{job_id}")["state"] in wanted, f"{job_id} is {wanted}")
    return site.read(f"/jobs/{job_id}")


def fetch(site: Site, job_id: str) -> httpx.Response:
    return site.management.get(f"/exports/{job_id}/file")


@pytest.fixture
def made(site: Site) -> Site:
    site.start_api()
    site.make_form()
    return site


async def test_a_file_is_written_by_a_worker_and_fetched_over_http(made: Site) -> None:
    fill(made, 30)
    job_id = start(made, bom=True)
    assert fetch(made, job_id).status_code == 409
    made.start_worker("exports")
    job = await state(made, job_id, "completed")
    file = fetch(made, job_id)

    assert file.headers["content-type"] == "text/csv; charset=utf-8"
    assert file.headers["content-disposition"].startswith('attachment; filename="contact-20')
    assert file.headers["content-length"] == str(job["result"]["bytes"]) == str(len(file.content))
    assert job["result"]["rows"] == 27
    rows = list(csv.reader(io.StringIO(file.content.decode("utf-8-sig"), newline="")))
    assert rows[0][4:] == ["number", "only 1", "only 2", "only 3", "only 4", "only 0"]
    assert [row[4] for row in rows[1:]] == [str(n) for n in range(1, 31) if n % 10]
    assert rows[1][5] == '\'=x, "y"\nz'
    steps = made.management.get(f"/jobs/{job_id}/events", headers={"accept": "application/json"}).json()
    assert [one["status"] for one in steps["items"]] == ["started", "completed"]


async def test_a_worker_killed_in_mid_export_leaves_the_same_file_to_its_successor(made: Site) -> None:
    fill(made)
    settings = {"job_lease_seconds": "2"}
    whole = start(made)
    made.start_worker("exports", **settings)
    await state(made, whole, "completed")
    for one in made._processes.running[1:]:  # noqa: SLF001
        one.dies()

    job_id = start(made)
    for pieces in (3, 12):
        worker = made.start_worker("exports", **settings)
        await until(
            lambda pieces=pieces: made.count("export_chunks", f"job_id = '{job_id}'") >= pieces,  # type: ignore[misc]
            "some pieces are written",
        )
        worker.dies()
        assert made.read(f"/jobs/{job_id}")["state"] == "processing"
    made.start_worker("exports", **settings)
    await state(made, job_id, "completed")

    assert made.count("jobs", f"id = '{job_id}' AND claim_count = 3") == 1
    file = fetch(made, job_id).content
    assert file == fetch(made, whole).content
    assert file.count(b"\r\n") == MANY * 9 // 10 + 1


async def test_an_erased_submission_takes_the_file_with_it_and_the_answer_says_why(made: Site) -> None:
    fill(made, 30)
    made.start_worker("exports")
    job_id, other = start(made, format="ndjson"), start(made, received_before="2020-01-01T00:00:00Z")
    await state(made, job_id, "completed")
    await state(made, other, "completed")
    lines = fetch(made, job_id).text.splitlines()

    erased = json.loads(lines[3])["submission_id"]
    assert made.management.delete(f"/submissions/{erased}").status_code == 204

    gone = fetch(made, job_id)
    assert (gone.status_code, gone.json()["code"]) == (410, "export_gone")
    assert "erased" in gone.json()["detail"]
    assert made.count("export_chunks", f"job_id = '{job_id}'") == 0
    assert fetch(made, other).status_code == 200


async def test_submissions_are_streamed_at_once(made: Site) -> None:
    fill(made, 2_500)
    made.create("/forms", {"id": "other", "name": "Other"})
    made.post({"a": ["1", "2"]}, "other")
    as_json = made.management.get("/submissions/export", params={"form_id": "contact"})
    everything = made.management.get("/submissions/export", params={"format": "ndjson"})
    as_csv = made.management.get("/submissions/export", params={"format": "csv", "form_id": "other"})

    assert len(as_json.json()) == 2_250
    assert len(everything.text.splitlines()) == 2_251
    assert as_csv.headers["content-disposition"] == 'attachment; filename="other.csv"'
    assert as_csv.text.splitlines()[0] == "submission_id,form_id,received_at,is_spam,a"


@pytest.mark.parametrize(
    ("path", "wanted"),
    [
        ("/submissions/export?format=xml", "format"),
        ("/submissions/export?form=contact", "form"),
        ("/submissions/export?received_after=yesterday", "received_after"),
    ],
)
def test_what_cannot_be_exported_is_refused_by_name(shared_site: Site, path: str, wanted: str) -> None:
    answer = shared_site.management.get(path)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == wanted


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        ({"form_id": "missing", "format": "csv"}, "form_id"),
        ({"form_id": "contact"}, "format"),
        ({"form_id": "contact", "format": "xls"}, "format"),
        ({"form_id": "contact", "format": "csv", "received_after": "2026-01-01"}, "received_after"),
    ],
)
def test_an_export_that_cannot_be_started_is_refused_by_name(
    shared_site: Site, body: dict[str, Any], wanted: str
) -> None:
    answer = shared_site.management.post("/exports", json=body)
    assert answer.status_code == 422
    assert wanted in answer.json()["errors"][0]["field"]
    assert shared_site.management.get("/exports/job_missing/file").status_code == 404


async def test_a_piece_that_is_being_written_and_an_erasure_wait_for_each_other(database_url: str) -> None:
    async with postgres_world(database_url) as world:
        submission, job_id = await _one_in_an_export(world)

        async def write() -> None:
            await world.exports.hold_off_erasures(FormId("contact"))
            found = await world.walk.batch(SubmissionFilter(), behind=None, looks=10, size=1_000)
            assert [one.id for one in found.submissions] == [submission]
            await world.exports.append(
                job_id,
                ExportChunk(number=0, body=b"x", reached=WalkPlace.of(found.submissions[0]), last=True),
                keep=(START - START),
            )

        async with held_open(world, write):
            erasing = asyncio.create_task(_erase(world, submission))
            await waits_for_a_lock(database_url)
        await erasing

        stored = await world.exports.find(job_id)
        assert stored is not None
        assert stored.withdrawn == "erased"


async def test_an_erasure_that_is_not_committed_keeps_pieces_from_being_written(database_url: str) -> None:
    async with postgres_world(database_url) as world:
        submission, _ = await _one_in_an_export(world)
        found: list[int] = []

        async def write() -> None:
            async with world.transactions.begin():
                await world.exports.hold_off_erasures(FormId("contact"))
                batch = await world.walk.batch(SubmissionFilter(), behind=None, looks=10, size=1_000)
                found.append(len(batch.submissions))

        def erase() -> Any:
            return _erase_within(world, submission)

        async with held_open(world, erase):
            writing = asyncio.create_task(write())
            await waits_for_a_lock(database_url)
        await writing
        assert found == [0]


async def test_posts_do_not_wait_for_an_export(database_url: str) -> None:
    async with postgres_world(database_url) as world:
        await _one_in_an_export(world)

        def hold() -> Any:
            return world.exports.hold_off_erasures(FormId("contact"))

        async with held_open(world, hold):
            await asyncio.wait_for(world.stores([a_submission()]), 5)


@pytest.mark.parametrize("name", ["walk_submissions", "survey_submissions"])
@pytest.mark.parametrize("which", [SubmissionFilter(form_id=FormId("contact")), SubmissionFilter()])
async def test_a_walk_reads_no_more_than_it_looks_at(
    database_url: str, site: Site, name: str, which: SubmissionFilter
) -> None:
    async with postgres_world(database_url) as world:
        for form_id in ("before", "contact", "later"):
            await world.forms.add(a_new_form(form_id))
    fill(site, 20_000)
    site.execute("ANALYZE submissions")
    (middle,) = site.query(
        "SELECT received_at, id FROM submissions ORDER BY received_at LIMIT 1 OFFSET 10000"
    )
    behind = WalkPlace(form_id=FormId("contact"), received_at=middle[0], id=middle[1])

    found = await plan(database_url, name, **walked(which, behind), looks=100, size=1_000_000)

    assert found.of("submissions") == {"Index Scan"}
    assert found.touched < 200


async def _one_in_an_export(world: World) -> tuple[SubmissionId, Any]:
    await world.forms.add(a_new_form())
    submission = a_submission()
    await world.stores([submission])
    (enqueued,) = await world.jobs.enqueue([a_new_job("exports")])
    await world.exports.begin(enqueued.job_id, FormId("contact"), received_after=None, keep=START - START)
    return submission.id, enqueued.job_id


async def _erase(world: World, submission_id: SubmissionId) -> None:
    async with world.transactions.begin():
        await _erase_within(world, submission_id)


async def _erase_within(world: World, submission_id: SubmissionId) -> None:
    await world.exports.withdraw_holding(submission_id)
    await world.submissions.erase(submission_id)
