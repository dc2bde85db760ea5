"""What writing a file of submissions promises, over any store: nothing lost, doubled, or kept that was erased."""

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

import pytest

from hymical.application.exports import (
    EXPORT,
    OpenExportFile,
    StartExport,
    StreamSubmissions,
    WantedExport,
    WriteExport,
)
from hymical.application.forms import EraseSubmission
from hymical.application.jobs import LeasedContext
from hymical.domain.errors import ExportGone, ExportNotReady, InvalidValue, JobLost, NotFound
from hymical.domain.exports import ExportFormat, ExportStyle
from hymical.domain.forms import Fields, Submission
from hymical.domain.ids import FormId, JobId
from hymical.domain.jobs import Ending, Finished, GiveUp, Job, JobCatalog, JobType, Json, SubjectGone, settle
from hymical.ports.exports import WalkPlace
from hymical.ports.forms import SubmissionFilter
from hymical.ports.jobs import SettledJob
from tests.builders import LEASE, a_new_form, a_submission, ids
from tests.worlds import World

CONTACT = FormId("contact")
SECOND, HOUR, DAY = timedelta(seconds=1), timedelta(hours=1), timedelta(days=1)
CATALOG = JobCatalog(types={EXPORT: JobType(name=EXPORT, queue="exports")}, max_retries=3)


class WorkerDied(Exception):
    pass


@dataclass(slots=True)
class DyingContext:
    """The port `JobContext`, of a worker that dies at its n-th save."""

    context: LeasedContext
    saves_left: int

    def __getattr__(self, name: str) -> object:
        return getattr(self.context, name)

    async def save(self, checkpoint: Json) -> None:
        if self.saves_left == 0:
            raise WorkerDied
        self.saves_left -= 1
        await self.context.save(checkpoint)


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    world: World

    async def start(
        self, form_id: FormId = CONTACT, kind: ExportFormat = ExportFormat.NDJSON, **wanted: object
    ) -> tuple[JobId, WantedExport]:
        what = replace(
            WantedExport(form_id=form_id, style=ExportStyle(format=kind)),
            **wanted,  # type: ignore[arg-type]
        )
        start = StartExport(
            forms=self.world.forms,
            catalog=CATALOG,
            queue=self.world.jobs,
            history=self.world.job_history,
            ids=ids,
        )
        return (await start(what)).id, what

    async def claim(self) -> Job:
        (job,) = (await self.world.jobs.claim(["exports"], limit=1, lease=LEASE)).jobs
        return job

    def context(self, job: Job) -> LeasedContext:
        clock = self.world.clock
        return LeasedContext(
            job=job,
            claimed_now=clock.now(),
            claimed_at=clock.monotonic(),
            queue=self.world.jobs,
            progress=self.world.progress,
            clock=clock,
        )

    @property
    def write(self) -> WriteExport:
        """In small pieces."""
        world = self.world
        return WriteExport(
            walk=world.walk,
            exports=world.exports,
            transactions=world.transactions,
            keep=DAY,
            looks_surveyed=3,
            looks_written=2,
        )

    async def finish(self, job: Job, wanted: WantedExport) -> Ending:
        ending = await self.write(wanted, self.context(job))
        await self.world.jobs.settle([SettledJob(lease=job.lease, settlement=settle(job, ending, 0.5))])
        return ending

    async def export(
        self, form_id: FormId = CONTACT, kind: ExportFormat = ExportFormat.NDJSON, **wanted: object
    ) -> tuple[JobId, Ending]:
        job_id, what = await self.start(form_id, kind, **wanted)
        return job_id, await self.finish(await self.claim(), what)

    async def file(self, job_id: JobId) -> bytes:
        file = await OpenExportFile(history=self.world.job_history, exports=self.world.exports)(job_id)
        body = b"".join([piece async for piece in file.pieces])
        assert len(body) == file.size
        return body

    async def erase(self, submission: Submission) -> None:
        world = self.world
        await EraseSubmission(
            submissions=world.submissions,
            queue=world.queue,
            exports=world.exports,
            transactions=world.transactions,
        )(submission.id)

    async def receives(self, count: int, form_id: str = "contact", **of: object) -> Sequence[Submission]:
        """One a second."""
        submissions = []
        for number in range(count):
            fields: Fields = (("number", (str(number),)), (f"only {number % 3}", ("x",)))
            one = a_submission(form_id, fields=fields, at=self.world.clock.now())
            submissions.append(replace(one, **of))  # type: ignore[arg-type]
            self.world.clock.move(SECOND)
        await self.world.stores(submissions)
        return submissions


@pytest.fixture
async def desk(world: World) -> Desk:
    await world.forms.add(a_new_form())
    await world.forms.add(a_new_form("other"))
    return Desk(world=world)


def listed(body: bytes) -> list[str]:
    return [json.loads(line)["submission_id"] for line in body.splitlines()]


def ids_of(submissions: Sequence[Submission]) -> list[str]:
    return [one.id for one in submissions]


async def test_a_file_holds_every_submission_of_its_form_the_oldest_first(desk: Desk) -> None:
    submissions = await desk.receives(7)
    await desk.receives(2, "other")
    await desk.receives(2, is_spam=True)

    job_id, ending = await desk.export()

    assert listed(await desk.file(job_id)) == ids_of(submissions)
    expires_at = (desk.world.clock.now() + DAY).isoformat()
    assert isinstance(ending, Finished)
    assert ending.result is not None
    assert ending.result["rows"] == 7
    assert ending.result["bytes"] == len(await desk.file(job_id))
    assert str(ending.result["expires_at"])[:19] == expires_at[:19]


async def test_spam_and_a_stretch_of_time_can_be_asked_for(desk: Desk) -> None:
    submissions = await desk.receives(6)
    spam = await desk.receives(3, is_spam=True)
    some, _ = await desk.export(
        received_after=submissions[1].received_at, received_before=submissions[4].received_at
    )
    bad, _ = await desk.export(spam=True)

    assert listed(await desk.file(some)) == ids_of(submissions[2:4])
    assert listed(await desk.file(bad)) == ids_of(spam)


@pytest.mark.parametrize("kind", ExportFormat)
async def test_a_form_without_submissions_gives_a_whole_file(desk: Desk, kind: ExportFormat) -> None:
    job_id, _ = await desk.export(kind=kind)
    body = await desk.file(job_id)
    assert (
        body
        == {"csv": b"submission_id,form_id,received_at,is_spam\r\n", "json": b"[\n\n]\n", "ndjson": b""}[kind]
    )


async def test_columns_are_known_before_the_first_row_is_written(desk: Desk) -> None:
    await desk.receives(7)
    job_id, _ = await desk.export(kind=ExportFormat.CSV)
    header, *rows = csv.reader(io.StringIO((await desk.file(job_id)).decode(), newline=""))
    assert header[4:] == ["number", "only 0", "only 1", "only 2"]
    assert [row[4] for row in rows] == list("0123456")


@pytest.mark.parametrize("kind", ExportFormat)
async def test_a_worker_that_dies_anywhere_leaves_the_same_file_to_its_successor(
    desk: Desk, kind: ExportFormat
) -> None:
    await desk.receives(7)
    whole_id, _ = await desk.export(kind=kind)
    whole, saves = await desk.file(whole_id), 0
    while True:
        job_id, wanted = await desk.start(kind=kind, received_before=desk.world.clock.now())
        died = DyingContext(context=desk.context(await desk.claim()), saves_left=saves)
        try:
            await desk.write(wanted, died)  # type: ignore[arg-type]
        except WorkerDied:
            desk.world.clock.move(LEASE)
            await desk.finish(await desk.claim(), wanted)
            assert await desk.file(job_id) == whole
            saves += 1
        else:
            break
    assert saves >= 7


async def test_a_worker_that_was_overtaken_writes_nothing_more(desk: Desk) -> None:
    await desk.receives(5)
    job_id, wanted = await desk.start()
    late = desk.context(await desk.claim())
    desk.world.clock.move(LEASE)
    await desk.finish(await desk.claim(), wanted)
    before = await desk.file(job_id)

    with pytest.raises(JobLost):
        await desk.write(wanted, late)
    assert await desk.file(job_id) == before


async def test_what_arrives_while_a_file_is_written_is_not_in_it(desk: Desk) -> None:
    early = await desk.receives(3)
    job_id, wanted = await desk.start()
    died = DyingContext(context=desk.context(await desk.claim()), saves_left=2)
    with pytest.raises(WorkerDied):
        await desk.write(wanted, died)  # type: ignore[arg-type]
    desk.world.clock.move(LEASE)
    await desk.receives(3)
    await desk.finish(await desk.claim(), wanted)
    assert listed(await desk.file(job_id)) == ids_of(early)


async def test_erasing_a_submission_removes_the_files_that_hold_it_and_no_other(desk: Desk) -> None:
    submissions = await desk.receives(4)
    await desk.receives(1, "other")
    everything, _ = await desk.export()
    later, _ = await desk.export(received_after=submissions[1].received_at)
    earlier, _ = await desk.export(received_before=submissions[1].received_at)
    others, _ = await desk.export(FormId("other"))

    await desk.erase(submissions[1])

    with pytest.raises(ExportGone) as gone:
        await desk.file(everything)
    assert gone.value.reason == "erased"
    with pytest.raises(NotFound):
        await desk.world.submissions.get(submissions[1].id)
    assert listed(await desk.file(later)) == ids_of(submissions[2:])
    assert listed(await desk.file(earlier)) == ids_of(submissions[:1])
    assert len(listed(await desk.file(others))) == 1


async def test_the_last_submission_of_a_file_counts_as_in_it(desk: Desk) -> None:
    submissions = await desk.receives(4)
    job_id, _ = await desk.export()
    await desk.erase(submissions[-1])
    with pytest.raises(ExportGone):
        await desk.file(job_id)


@pytest.mark.parametrize("erased", range(6))
@pytest.mark.parametrize("saves", range(2, 7))
async def test_what_is_erased_while_a_file_is_written_is_not_in_it(
    desk: Desk, saves: int, erased: int
) -> None:
    submissions = list(await desk.receives(6))
    job_id, wanted = await desk.start(kind=ExportFormat.JSON)
    died = DyingContext(context=desk.context(await desk.claim()), saves_left=saves)
    with pytest.raises(WorkerDied):
        await desk.write(wanted, died)  # type: ignore[arg-type]
    await desk.erase(submissions.pop(erased))
    desk.world.clock.move(LEASE)
    await desk.finish(await desk.claim(), wanted)

    found = [one["submission_id"] for one in json.loads(await desk.file(job_id))]
    assert found == ids_of(submissions)


async def test_a_file_is_gone_once_its_time_is_up(desk: Desk) -> None:
    await desk.receives(1)
    job_id, _ = await desk.export()
    desk.world.clock.move(DAY - SECOND)
    assert await desk.file(job_id)
    desk.world.clock.move(SECOND)
    with pytest.raises(ExportGone) as gone:
        await desk.file(job_id)
    assert gone.value.reason == "expired"


async def test_there_is_no_file_before_the_job_is_completed_nor_of_another_job(desk: Desk) -> None:
    job_id, wanted = await desk.start()
    with pytest.raises(ExportNotReady) as early:
        await desk.file(job_id)
    assert early.value.state == "pending"
    with pytest.raises(NotFound):
        await desk.file(JobId("job_missing"))
    await desk.finish(await desk.claim(), wanted)
    await desk.file(job_id)


async def test_a_form_that_is_not_there_is_refused_and_one_that_is_deleted_meanwhile_ends_the_job(
    desk: Desk,
) -> None:
    with pytest.raises(InvalidValue):
        await desk.start(FormId("missing"))
    job_id, wanted = await desk.start()
    await desk.world.forms.delete(CONTACT)
    assert await desk.finish(await desk.claim(), wanted) == SubjectGone(what="form contact")
    with pytest.raises(NotFound):
        await desk.file(job_id)


async def test_too_many_different_names_are_told_and_not_tried_again(desk: Desk) -> None:
    fields: Fields = tuple((f"name {number}", ("x",)) for number in range(1_001))
    await desk.world.stores([a_submission(fields=fields, at=desk.world.clock.now() - SECOND)])
    _, ending = await desk.export(kind=ExportFormat.CSV)
    assert isinstance(ending, GiveUp)
    job_id, _ = await desk.export(kind=ExportFormat.JSON)
    assert len(json.loads(await desk.file(job_id))) == 1


async def test_progress_is_told_at_the_start_and_the_end_and_at_most_once_a_second(desk: Desk) -> None:
    await desk.receives(9)
    job_id, _ = await desk.export()
    events = [one.event for one in await desk.world.progress.since(job_id, 0)]
    assert [(one.status, one.message) for one in events] == [
        ("started", None),
        ("completed", {"rows": 9, "total": 9}),
    ]


@pytest.mark.parametrize("kind", ExportFormat)
async def test_what_is_streamed_at_once_is_the_file_of_a_job(desk: Desk, kind: ExportFormat) -> None:
    await desk.receives(5)
    job_id, _ = await desk.export(kind=kind)
    stream = StreamSubmissions(walk=desk.world.walk)
    pieces = await stream(SubmissionFilter(form_id=CONTACT), ExportStyle(format=kind))
    assert b"".join([piece async for piece in pieces]) == await desk.file(job_id)


async def test_a_walk_over_all_forms_goes_form_by_form(desk: Desk) -> None:
    of_other, of_contact = await desk.receives(3, "other"), await desk.receives(3)
    found: list[str] = []
    behind: WalkPlace | None = None
    while True:
        batch = await desk.world.walk.batch(SubmissionFilter(), behind=behind, looks=2, size=1_000_000)
        found += ids_of(batch.submissions)
        behind = batch.end
        if behind is None:
            break
    assert found == ids_of([*of_contact, *of_other])


async def test_a_batch_of_large_submissions_ends_early(desk: Desk) -> None:
    # words that do not compress
    await desk.world.stores(
        [a_submission(fields=(("x", ("".join(map(chr, range(256 + n, 3_000))),)),)) for n in range(20)]
    )
    batch = await desk.world.walk.batch(SubmissionFilter(), behind=None, looks=100, size=8_000)
    assert 1 <= len(batch.submissions) <= 5
    rest = await desk.world.walk.batch(SubmissionFilter(), behind=batch.end, looks=100, size=1_000_000)
    assert len(batch.submissions) + len(rest.submissions) == 20


async def test_a_worker_that_wakes_up_in_mid_export_learns_that_it_was_overtaken(desk: Desk) -> None:
    await desk.receives(6)
    job_id, wanted = await desk.start()
    first = await desk.claim()
    died = DyingContext(context=desk.context(first), saves_left=5)
    with pytest.raises(WorkerDied):
        await desk.write(wanted, died)  # type: ignore[arg-type]
    saved = (await _reclaimed(desk)).checkpoint
    desk.world.clock.move(LEASE)
    await desk.finish(await desk.claim(), wanted)
    before = await desk.file(job_id)

    with pytest.raises(JobLost):
        await desk.write(wanted, desk.context(replace(first, checkpoint=saved)))
    assert await desk.file(job_id) == before


async def _reclaimed(desk: Desk) -> Job:
    desk.world.clock.move(LEASE)
    return await desk.claim()
