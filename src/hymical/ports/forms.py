"""Where forms and their submissions are kept."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from hymical.domain.deliveries import Delivery
from hymical.domain.destinations import Destination
from hymical.domain.forms import Earlier, Form, NewForm, Submission
from hymical.domain.ids import FormId, SubmissionId
from hymical.domain.messages import Message


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

    async def lock(self, form_id: FormId) -> Form:
        """A form that nobody else changes until the transaction ends. Raises `NotFound`."""
        ...

    async def save(self, form: Form) -> None:
        """Keeps a form that was locked as it is now."""
        ...

    async def delete(self, form_id: FormId) -> None:
        """Removes a form with its destinations.

        Raises:
            NotFound: there is no such form.
            FormNotEmpty: it holds submissions.
        """
        ...

    async def intake(self, form_ids: Collection[FormId]) -> IntakeDesk:
        """Everything about these forms that a post to them needs; unknown ids are left out."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmissionFilter:
    """Which submissions are listed: spam, or what is not; None does not filter.

    `received_after` and `received_before` leave out those of these very instants. `text` is in a name or a value of
    them, small and capital letters being the same.
    """

    form_id: FormId | None = None
    spam: bool = False
    received_after: datetime | None = None
    received_before: datetime | None = None
    text: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmissionPlace:
    """Where a page of submissions ends, and the next one goes on: behind this one, which may be gone by then."""

    received_at: datetime
    id: SubmissionId


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmissionPage:
    """`end` is None on the last page."""

    submissions: Sequence[Submission]
    end: SubmissionPlace | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """A submission to be stored, with the message that tells of it and the deliveries that this one owes.

    What was received at `repeats_since` or before is no longer repeated by the same duplicate key.
    """

    submission: Submission
    repeats_since: datetime
    message: Message | None = None
    deliveries: Sequence[Delivery] = ()


class SubmissionRepository(Protocol):
    async def receive(self, arrivals: Sequence[Arrival]) -> Mapping[SubmissionId, Earlier]:
        """Stores each submission with its message and deliveries and wakes the workers, all of it or nothing.

        One that repeats an earlier submission is not stored, nor what comes with it; what these repeat is
        returned: by idempotency key whenever it was, else by duplicate key. No two of a batch repeat each other.

        Raises:
            FormNotFound: one's form was deleted since it was looked at; named is that of the first.
        """
        ...

    async def mark_good(self, submission_id: SubmissionId) -> Submission:
        """Takes a submission out of the spam, once.

        Raises:
            NotFound: there is no such submission.
            NotSpam: it is not kept as spam (any more).
        """
        ...

    async def get(self, submission_id: SubmissionId) -> Submission:
        """Raises `NotFound`."""
        ...

    async def erase(self, submission_id: SubmissionId) -> None:
        """Removes its values, from its messages and from what receivers answered too. Raises `NotFound`."""
        ...

    async def page(
        self, which: SubmissionFilter, *, behind: SubmissionPlace | None, limit: int, looks: int
    ) -> SubmissionPage:
        """The newest first, at most `limit`, by looking at `looks` of the form and the time that are asked for.

        A page that has looked at so many ends there, with what it has found, be it nothing.
        """
        ...
