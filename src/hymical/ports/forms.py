"""Where forms and their submissions are kept."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from hymical.domain.destinations import Destination
from hymical.domain.forms import Form, NewForm, Submission
from hymical.domain.ids import FormId, SubmissionId


@dataclass(frozen=True, slots=True, kw_only=True)
class Intake:
    """A form with the destinations that its submissions go to, deleted ones left out."""

    form: Form
    destinations: tuple[Destination, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class IntakeDesk:
    """What is needed to judge a batch of posts. `now` is the database's time."""

    now: datetime
    intakes: dict[FormId, Intake]


class FormRepository(Protocol):
    async def add(self, form: NewForm) -> Form:
        """Raises `AlreadyExists` when the id is taken."""
        ...

    async def get(self, form_id: FormId) -> Form:
        """Raises `NotFound`."""
        ...

    async def page(self, *, after: str | None, limit: int) -> Sequence[Form]:
        """Forms by id, those behind `after`, at most `limit`."""
        ...

    async def intake(self, form_ids: Collection[FormId]) -> IntakeDesk:
        """Everything about these forms that a post to them needs; unknown ids are left out."""
        ...


class SubmissionRepository(Protocol):
    async def add(self, submissions: Sequence[Submission]) -> None: ...

    async def get(self, submission_id: SubmissionId) -> Submission:
        """Raises `NotFound`."""
        ...

    async def erase(self, submission_id: SubmissionId) -> None:
        """Removes its values, from its messages and from what receivers answered too. Raises `NotFound`."""
        ...

    async def page(self, *, form_id: FormId | None, before: str | None, limit: int) -> Sequence[Submission]:
        """The newest first, those older than the one with the id `before`, at most `limit`."""
        ...
