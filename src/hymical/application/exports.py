"""Files of submissions: written by a job, piece by piece, or streamed at once."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from hymical.domain.errors import (
    ExportGone,
    ExportNotReady,
    ExportWithdrawn,
    InvalidValue,
    NotFound,
    TooManyColumns,
)
from hymical.domain.exports import ExportFormat, ExportStyle, with_names
from hymical.domain.ids import FormId, JobId, SubmissionId
from hymical.domain.instants import from_rfc3339, rfc3339
from hymical.domain.jobs import Ending, Finished, GiveUp, JobCatalog, JobState, Json, SubjectGone
from hymical.domain.progress import StepStatus
from hymical.ports.exports import (
    ExportChunk,
    ExportStore,
    SubmissionWalk,
    WalkPlace,
)
from hymical.ports.forms import FormRepository, SubmissionFilter
from hymical.ports.ids import Ids
from hymical.ports.jobs import JobContext, JobHistory, JobQueue, JobView
from hymical.ports.transactions import Transactions

EXPORT = "export_submissions"
"""The type of the jobs that write files."""

_STEP = "rows"
_LOOKS_SURVEYED, _LOOKS_WRITTEN, _PIECE_BYTES = 5_000, 1_000, 1_000_000
_TOLD_EVERY = timedelta(seconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedExport:
    form_id: FormId
    style: ExportStyle
    received_after: datetime | None = None
    received_before: datetime | None = None
    spam: bool = False

    def payload(self) -> Json:
        """What its job is given."""
        return {
            "form_id": self.form_id,
            "format": self.style.format,
            "bom": self.style.bom,
            "received_after": self.received_after and rfc3339(self.received_after),
            "received_before": self.received_before and rfc3339(self.received_before),
            "spam": self.spam,
        }

    def up_to(self, now: datetime) -> SubmissionFilter:
        """Which submissions it takes in: none that arrive while it is being written."""
        return SubmissionFilter(
            form_id=self.form_id,
            spam=self.spam,
            received_after=self.received_after,
            received_before=now if self.received_before is None else min(now, self.received_before),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """How far a file has come. `total` and `names` are complete once it is surveyed; `behind` is of either walk."""

    begun_at: datetime
    surveyed: bool = False
    total: int = 0
    names: tuple[str, ...] = ()
    behind: WalkPlace | None = None
    rows: int = 0
    size: int = 0
    chunks: int = 0
    complete: bool = False

    def checkpoint(self) -> Json:
        place = self.behind
        return {
            "begun_at": rfc3339(self.begun_at),
            "surveyed": self.surveyed,
            "total": self.total,
            "names": list(self.names),
            "behind": place and [place.form_id, rfc3339(place.received_at), place.id],
            "rows": self.rows,
            "size": self.size,
            "chunks": self.chunks,
            "complete": self.complete,
        }

    @classmethod
    def of(cls, checkpoint: Json) -> "Draft":
        saved = dict(checkpoint)
        begun_at, names, place = saved.pop("begun_at"), saved.pop("names"), saved.pop("behind")
        assert isinstance(begun_at, str)  # noqa: S101  as it was saved
        assert isinstance(names, list)  # noqa: S101
        assert place is None or isinstance(place, list)  # noqa: S101
        return cls(
            begun_at=from_rfc3339(begun_at),
            names=tuple(names),
            behind=None
            if place is None
            else WalkPlace(
                form_id=FormId(place[0]), received_at=from_rfc3339(place[1]), id=SubmissionId(place[2])
            ),
            **saved,  # type: ignore[arg-type]  # numbers and booleans, as they were saved
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StartExport:
    """Queues the job that writes a file of a form's submissions. Raises `InvalidValue`: there is no such form."""

    forms: FormRepository
    catalog: JobCatalog
    queue: JobQueue
    history: JobHistory
    ids: Ids

    async def __call__(self, wanted: WantedExport) -> JobView:
        try:
            await self.forms.get(wanted.form_id)
        except NotFound:
            raise InvalidValue("form_id", "must be that of a form") from None
        job = self.catalog.job(EXPORT, wanted.payload(), id=self.ids.job())
        await self.queue.enqueue([job])
        return await self.history.get(job.id)


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteExport:
    """Writes a file, from where the last run of its job stopped: one piece in one transaction with its checkpoint.

    A first walk finds out the names and how many rows there will be. When a submission that the file holds is
    erased meanwhile, the file is begun again.
    """

    walk: SubmissionWalk
    exports: ExportStore
    transactions: Transactions
    keep: timedelta
    looks_surveyed: int = _LOOKS_SURVEYED
    looks_written: int = _LOOKS_WRITTEN

    async def __call__(self, wanted: WantedExport, context: JobContext) -> Ending:
        saved = context.job.checkpoint
        told = context.now
        try:
            draft = await self._begin(wanted, context) if saved is None else Draft.of(saved)
            while not draft.complete:
                draft = await self._go_on(wanted, draft, context)
                if not draft.complete and context.now - told >= _TOLD_EVERY:
                    told = context.now
                    await context.publish(_STEP, StepStatus.PROGRESS, _progress(draft))
        except NotFound:
            return SubjectGone(what=f"form {wanted.form_id}")
        except TooManyColumns as error:
            return GiveUp(
                error=f"there are more than {error.limit} different names; a file in json or ndjson takes any"
            )
        return Finished(result=await self._result(wanted, draft, context))

    async def _begin(self, wanted: WantedExport, context: JobContext) -> Draft:
        async with self.transactions.begin():
            draft = Draft(begun_at=context.now)
            await context.save(draft.checkpoint())
            await self.exports.begin(
                context.job.id, wanted.form_id, received_after=wanted.received_after, keep=self.keep
            )
            await context.publish(_STEP, StepStatus.STARTED)
        return draft

    async def _go_on(self, wanted: WantedExport, draft: Draft, context: JobContext) -> Draft:
        try:
            async with self.transactions.begin():
                await self.exports.hold_off_erasures(wanted.form_id)
                step = self._write if draft.surveyed else self._survey
                return await step(wanted, draft, context)
        except ExportWithdrawn:
            return await self._begin(wanted, context)

    async def _survey(self, wanted: WantedExport, draft: Draft, context: JobContext) -> Draft:
        which = wanted.up_to(draft.begun_at)
        found = await self.walk.survey(which, behind=draft.behind, looks=self.looks_surveyed)
        names = with_names(draft.names, found.names) if wanted.style.has_columns else ()
        further = replace(
            draft,
            surveyed=found.end is None,
            total=draft.total + found.count,
            names=names,
            behind=found.end,
        )
        await context.save(further.checkpoint())
        return further

    async def _write(self, wanted: WantedExport, draft: Draft, context: JobContext) -> Draft:
        which = wanted.up_to(draft.begun_at)
        found = await self.walk.batch(which, behind=draft.behind, looks=self.looks_written, size=_PIECE_BYTES)
        style, last = wanted.style, found.end is None
        taken = style.taken(found.submissions, draft.names)
        body = (
            (style.head(draft.names) if draft.chunks == 0 else b"")
            + style.rows(taken, draft.names, first=draft.rows == 0)
            + (style.tail() if last else b"")
        )
        reached = WalkPlace.of(taken[-1]) if taken else None
        chunk = ExportChunk(number=draft.chunks, body=body, reached=reached, last=last)
        further = replace(
            draft,
            behind=found.end,
            rows=draft.rows + len(taken),
            size=draft.size + len(body),
            chunks=draft.chunks + 1,
            complete=last,
        )
        # first: whoever was overtaken learns of it before it writes anything
        await context.save(further.checkpoint())
        await self.exports.append(context.job.id, chunk, keep=self.keep)
        if last:
            await context.publish(_STEP, StepStatus.COMPLETED, _progress(further))
        return further

    async def _result(self, wanted: WantedExport, draft: Draft, context: JobContext) -> Json:
        stored = await self.exports.find(context.job.id)
        return {
            "rows": draft.rows,
            "bytes": draft.size,
            "format": wanted.style.format,
            "expires_at": stored and rfc3339(stored.expires_at),
        }


def _progress(draft: Draft) -> Json:
    return {"rows": draft.rows, "total": draft.total} if draft.surveyed else {"found": draft.total}


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportFile:
    """A file to hand out; reading its `pieces` raises `ExportWithdrawn` when it is removed meanwhile."""

    name: str
    format: ExportFormat
    size: int
    pieces: AsyncIterator[bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenExportFile:
    """Raises `NotFound`, `ExportNotReady` or `ExportGone`."""

    history: JobHistory
    exports: ExportStore

    async def __call__(self, job_id: JobId) -> ExportFile:
        job = await self.history.get(job_id)
        if job.type != EXPORT:
            raise NotFound("export", job_id)
        if job.state is not JobState.COMPLETED:
            raise ExportNotReady(job_id, job.state)
        stored = await self.exports.find(job_id)
        if stored is None or not stored.complete:
            # its form was gone before anything was written
            raise NotFound("export", job_id)
        if stored.withdrawn is not None:
            raise ExportGone(job_id, stored.withdrawn)
        form_id, format_ = str(job.payload["form_id"]), ExportFormat(str(job.payload["format"]))
        return ExportFile(
            name=f"{form_id}-{job.created_at:%Y-%m-%d}.{format_}",
            format=format_,
            size=stored.size,
            pieces=self._pieces(job_id, stored.chunks),
        )

    async def _pieces(self, job_id: JobId, count: int) -> AsyncIterator[bytes]:
        for number in range(count):
            yield await self.exports.read(job_id, number)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSubmissions:
    """A file of submissions at once, piece by piece; nothing is kept of it.

    Raises:
        TooManyColumns: before the first piece.
    """

    walk: SubmissionWalk

    async def __call__(self, which: SubmissionFilter, style: ExportStyle) -> AsyncIterator[bytes]:
        names = await self._names(which) if style.has_columns else ()
        return self._pieces(which, style, names)

    async def _names(self, which: SubmissionFilter) -> tuple[str, ...]:
        names: tuple[str, ...] = ()
        behind = None
        while True:
            found = await self.walk.survey(which, behind=behind, looks=_LOOKS_SURVEYED)
            names, behind = with_names(names, found.names), found.end
            if behind is None:
                return names

    async def _pieces(
        self, which: SubmissionFilter, style: ExportStyle, names: tuple[str, ...]
    ) -> AsyncIterator[bytes]:
        yield style.head(names)
        behind, rows = None, 0
        while True:
            found = await self.walk.batch(which, behind=behind, looks=_LOOKS_WRITTEN, size=_PIECE_BYTES)
            taken = style.taken(found.submissions, names)
            yield style.rows(taken, names, first=rows == 0)
            behind, rows = found.end, rows + len(taken)
            if behind is None:
                yield style.tail()
                return
