"""Walks over submissions, and the files of exports, in PostgreSQL."""

import zlib
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, Row, case, func, select

from hymical.adapters.postgres.errors import translated
from hymical.adapters.postgres.tables import export_chunks, exports, forms
from hymical.adapters.postgres.transactions import PostgresTransactions
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

_EVER, _NEVER = datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC)
_LAST = "~"
"""Behind every id, as ids are compared."""
_FASTEST = 1


class PostgresSubmissionWalk:
    def __init__(self, transactions: PostgresTransactions) -> None:
        self._transactions = transactions

    async def survey(self, which: SubmissionFilter, *, behind: WalkPlace | None, looks: int) -> SurveyedBatch:
        parameters = walked(which, behind) | {"looks": looks}
        rows = await self._transactions.run("survey_submissions", parameters)
        shapes = [row for row in rows if row.names is not None]
        last = next((row for row in rows if row.names is None), None)
        return SurveyedBatch(
            count=sum(row.wanted for row in shapes),
            names=list(dict.fromkeys(name for row in shapes for name in row.names)),
            end=None if last is None else _place(last),
        )

    async def batch(
        self, which: SubmissionFilter, *, behind: WalkPlace | None, looks: int, size: int
    ) -> WalkedBatch:
        parameters = walked(which, behind) | {"looks": looks, "size": size}
        rows = await self._transactions.run("walk_submissions", parameters)
        last = rows[-1] if rows else None
        return WalkedBatch(
            submissions=[
                Submission(
                    id=row.id,
                    form_id=row.form_id,
                    received_at=row.received_at,
                    fields=tuple((name, tuple(values)) for name, values in row.fields.items()),
                    is_spam=row.is_spam,
                )
                for row in rows
                if row.fields is not None
            ],
            end=None if last is None else _place(last),
        )


def _place(row: Row[*tuple[Any, ...]]) -> WalkPlace:
    return WalkPlace(form_id=row.form_id, received_at=row.received_at, id=row.id)


def walked(which: SubmissionFilter, behind: WalkPlace | None) -> dict[str, object]:
    """The range of a walk, as parameters of its statements."""
    after = which.received_after or _EVER
    first = (behind.form_id, behind.received_at, behind.id) if behind else (which.form_id or "", after, _LAST)
    return {
        "spam": which.spam,
        "behind_form": first[0],
        "behind_at": first[1],
        "behind_id": first[2],
        "last_form": which.form_id or _LAST,
        "received_after": after,
        "received_before": which.received_before or _NEVER,
    }


class PostgresExportStore:
    """Pieces are compressed where they are kept: a server that reads them on needs no memory of its own for it."""

    def __init__(self, transactions: PostgresTransactions, clock: Clock) -> None:
        self._transactions = transactions
        self._clock = clock

    async def begin(
        self, job_id: JobId, form_id: FormId, *, received_after: datetime | None, keep: timedelta
    ) -> None:
        parameters = {
            "now": self._clock.pinned(),
            "job_id": job_id,
            "form_id": form_id,
            "received_after": received_after,
            "keep": keep,
        }
        gone = {"exports_job_id_fkey": NotFound("job", job_id)}
        await self._transactions.run("begin_export", parameters, constraints=gone)

    async def hold_off_erasures(self, form_id: FormId) -> None:
        query = select(forms.c.id).where(forms.c.id == form_id).with_for_update(read=True)
        with translated():
            async with self._transactions.connection() as connection:
                if (await connection.execute(query)).first() is None:
                    raise NotFound("form", form_id)

    async def append(self, job_id: JobId, chunk: ExportChunk, *, keep: timedelta) -> None:
        parameters = {
            "now": self._clock.pinned(),
            "job_id": job_id,
            "number": chunk.number,
            "body": zlib.compress(chunk.body, _FASTEST),
            "length": len(chunk.body),
            "reached_at": chunk.reached and chunk.reached.received_at,
            "reached_id": chunk.reached and chunk.reached.id,
            "last": chunk.last,
            "keep": keep,
        }
        if not await self._transactions.run("append_export_chunk", parameters):
            raise ExportWithdrawn

    async def find(self, job_id: JobId) -> StoredExport | None:
        # its time may be up before the clean-up comes by
        gone: ColumnElement[str | None] = case(
            (exports.c.withdrawn.is_not(None), exports.c.withdrawn),
            (
                exports.c.expires_at <= func.coalesce(self._clock.pinned(), func.clock_timestamp()),
                Withdrawal.EXPIRED.value,
            ),
        )
        query = select(exports, gone.label("gone")).where(exports.c.job_id == job_id)
        with translated():
            async with self._transactions.connection() as connection:
                row = (await connection.execute(query)).one_or_none()
        if row is None:
            return None
        return StoredExport(
            size=row.size,
            chunks=row.chunks,
            complete=row.complete,
            expires_at=row.expires_at,
            withdrawn=Withdrawal(row.gone) if row.gone else None,
        )

    async def read(self, job_id: JobId, number: int) -> bytes:
        query = select(export_chunks.c.body).where(
            export_chunks.c.job_id == job_id, export_chunks.c.number == number
        )
        with translated():
            async with self._transactions.connection() as connection:
                body = await connection.scalar(query)
        if body is None:
            raise ExportWithdrawn
        return zlib.decompress(body)

    async def withdraw_holding(self, submission_id: SubmissionId) -> None:
        parameters = {"submission_id": submission_id}
        async with self._transactions.together():
            # a statement of its own: the next one then sees what was written until the lock was had
            await self._transactions.run("lock_form_of_submission", parameters)
            await self._transactions.run("withdraw_exports_of", parameters)
