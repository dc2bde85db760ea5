"""Walks over submissions, and the files of exports, in memory."""

from dataclasses import replace
from datetime import datetime, timedelta

from hymical.adapters.memory.store import MemoryStore, StoredFile
from hymical.domain.errors import ExportWithdrawn, NotFound
from hymical.domain.forms import Submission
from hymical.domain.ids import FormId, JobId, SubmissionId
from hymical.ports.clock import Clock
from hymical.ports.exports import (
    ExportChunk,
    StoredExport,
    SurveyedBatch,
    WalkedBatch,
    WalkPlace,
    Withdrawal,
)
from hymical.ports.forms import SubmissionFilter


class MemorySubmissionWalk:
    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    async def survey(self, which: SubmissionFilter, *, behind: WalkPlace | None, looks: int) -> SurveyedBatch:
        seen = self._seen(which, behind)[:looks]
        wanted = [one for one in seen if one.is_spam is which.spam]
        return SurveyedBatch(
            count=len(wanted),
            names=list(dict.fromkeys(name for one in wanted for name, _ in one.fields)),
            end=WalkPlace.of(seen[-1]) if len(seen) == looks else None,
        )

    async def batch(
        self, which: SubmissionFilter, *, behind: WalkPlace | None, looks: int, size: int
    ) -> WalkedBatch:
        found, held = list[Submission](), 0
        end: WalkPlace | None = None
        for one in self._seen(which, behind)[:looks]:
            if held >= size:
                break
            end = WalkPlace.of(one)
            if one.is_spam is which.spam:
                found.append(one)
                held += sum(len(name) + sum(map(len, values)) for name, values in one.fields)
        return WalkedBatch(submissions=found, end=end)

    def _seen(self, which: SubmissionFilter, behind: WalkPlace | None) -> list[Submission]:
        return sorted(
            (
                one
                for one in self._store.rows.submissions.values()
                if (which.form_id is None or one.form_id == which.form_id)
                and (which.received_after is None or one.received_at > which.received_after)
                and (which.received_before is None or one.received_at < which.received_before)
                and (behind is None or _order(WalkPlace.of(one)) > _order(behind))
            ),
            key=lambda one: _order(WalkPlace.of(one)),
        )


def _order(place: WalkPlace) -> tuple[str, datetime, str]:
    return place.form_id, place.received_at, place.id


class MemoryExportStore:
    def __init__(self, store: MemoryStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def begin(
        self, job_id: JobId, form_id: FormId, *, received_after: datetime | None, keep: timedelta
    ) -> None:
        if job_id not in self._store.rows.jobs:
            raise NotFound("job", job_id)
        self._store.rows.exports[job_id] = StoredFile(
            form_id=form_id, received_after=received_after, expires_at=self._clock.now() + keep
        )

    async def hold_off_erasures(self, form_id: FormId) -> None:
        # one transaction at a time is all the holding off that there is here
        if form_id not in self._store.rows.forms:
            raise NotFound("form", form_id)

    async def append(self, job_id: JobId, chunk: ExportChunk, *, keep: timedelta) -> None:
        file = self._store.rows.exports.get(job_id)
        if file is None or file.withdrawn is not None:
            raise ExportWithdrawn
        self._store.rows.exports[job_id] = replace(
            file,
            pieces=(*file.pieces, chunk.body),
            reached=chunk.reached or file.reached,
            complete=chunk.last,
            expires_at=self._clock.now() + keep,
        )

    async def find(self, job_id: JobId) -> StoredExport | None:
        file = self._store.rows.exports.get(job_id)
        if file is None:
            return None
        expired = Withdrawal.EXPIRED if file.expires_at <= self._clock.now() else None
        return StoredExport(
            size=sum(map(len, file.pieces)),
            chunks=len(file.pieces),
            complete=file.complete,
            expires_at=file.expires_at,
            withdrawn=file.withdrawn or expired,
        )

    async def read(self, job_id: JobId, number: int) -> bytes:
        file = self._store.rows.exports.get(job_id)
        if file is None or number >= len(file.pieces):
            raise ExportWithdrawn
        return file.pieces[number]

    async def withdraw_holding(self, submission_id: SubmissionId) -> None:
        rows = self._store.rows
        erased = rows.submissions.get(submission_id)
        if erased is None:
            return
        place = _order(WalkPlace.of(erased))
        for job_id, file in rows.exports.items():
            if (
                file.form_id == erased.form_id
                and file.withdrawn is None
                and file.reached is not None
                and _order(file.reached) >= place
                and (file.received_after is None or file.received_after < erased.received_at)
            ):
                rows.exports[job_id] = replace(file, withdrawn=Withdrawal.ERASED, pieces=())
