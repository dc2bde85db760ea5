"""Where exports read submissions, and where their files are kept."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Protocol

from hymical.domain.forms import Submission
from hymical.domain.ids import FormId, JobId, SubmissionId
from hymical.ports.forms import SubmissionFilter


@dataclass(frozen=True, slots=True, kw_only=True)
class WalkPlace:
    """How far a walk has come: behind this submission, which may be gone by then."""

    form_id: FormId
    received_at: datetime
    id: SubmissionId

    @classmethod
    def of(cls, submission: Submission) -> "WalkPlace":
        return cls(form_id=submission.form_id, received_at=submission.received_at, id=submission.id)


@dataclass(frozen=True, slots=True, kw_only=True)
class WalkedBatch:
    """`end` is the last that was looked at; None once there are no more."""

    submissions: Sequence[Submission]
    end: WalkPlace | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SurveyedBatch:
    """How many there are, and their fields' names in the order in which each came first; `end` as in a walk."""

    count: int
    names: Sequence[str]
    end: WalkPlace | None


class SubmissionWalk(Protocol):
    """All submissions of a filter (its `text` is not looked at): by form, and of each form the oldest first.

    One call looks at so many at most, whether the filter wants them or not, so that no call takes long.
    """

    async def survey(
        self, which: SubmissionFilter, *, behind: WalkPlace | None, looks: int
    ) -> SurveyedBatch: ...

    async def batch(
        self, which: SubmissionFilter, *, behind: WalkPlace | None, looks: int, size: int
    ) -> WalkedBatch:
        """Ends early once what it has found takes about `size` bytes where it is stored."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportChunk:
    """A piece of a file, numbered from 0; `reached` is the last submission in it, `last` completes the file."""

    number: int
    body: bytes
    reached: WalkPlace | None
    last: bool


class Withdrawal(StrEnum):
    """Why a file is gone."""

    ERASED = "erased"
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredExport:
    """A file as it is kept: `size` in bytes, `chunks` how many pieces. Those of a withdrawn one are gone."""

    size: int
    chunks: int
    complete: bool
    expires_at: datetime
    withdrawn: Withdrawal | None


class ExportStore(Protocol):
    """Files in pieces, each kept as long as `keep` says after it was last written to."""

    async def begin(
        self, job_id: JobId, form_id: FormId, *, received_after: datetime | None, keep: timedelta
    ) -> None:
        """An empty file, whatever was there before; all that it will hold was received after that instant."""
        ...

    async def hold_off_erasures(self, form_id: FormId) -> None:
        """Until the transaction ends no submission of the form is erased. Raises `NotFound`."""
        ...

    async def append(self, job_id: JobId, chunk: ExportChunk, *, keep: timedelta) -> None:
        """Raises `ExportWithdrawn`: the file is to be begun again."""
        ...

    async def find(self, job_id: JobId) -> StoredExport | None: ...

    async def read(self, job_id: JobId, number: int) -> bytes:
        """One piece. Raises `ExportWithdrawn`."""
        ...

    async def withdraw_holding(self, submission_id: SubmissionId) -> None:
        """Removes every file that holds a submission which is being erased, and lets none take it in any more."""
        ...
