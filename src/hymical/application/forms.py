"""Forms and what is posted to them."""

from collections.abc import Sequence
from dataclasses import dataclass

from hymical.domain.deliveries import Delivery, fan_out
from hymical.domain.errors import FormNotFound, PostRefused
from hymical.domain.forms import Form, NewForm, PostedForm, Receipt, Submission, accept, receipt
from hymical.domain.ids import FormId, SubmissionId
from hymical.domain.limits import IntakeLimits
from hymical.domain.messages import Message, submission_message
from hymical.ports.deliveries import DeliveryQueue
from hymical.ports.forms import FormRepository, SubmissionRepository
from hymical.ports.ids import Ids
from hymical.ports.transactions import Transactions


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptPosts:
    """Stores posts and the deliveries they owe, all in one transaction, and wakes the workers with it.

    Each post gets its receipt, or the refusal that it earned; a refused one takes nothing from its neighbours.

    Raises:
        StorageUnavailable: nothing was stored, as far as can be known.
    """

    forms: FormRepository
    submissions: SubmissionRepository
    queue: DeliveryQueue
    transactions: Transactions
    ids: Ids
    limits: IntakeLimits

    async def __call__(self, posts: Sequence[PostedForm]) -> Sequence[Receipt | PostRefused]:
        answers: list[Receipt | PostRefused] = []
        submissions: list[Submission] = []
        messages: list[Message] = []
        owed: list[Delivery] = []
        async with self.transactions.begin():
            desk = await self.forms.intake({post.form_id for post in posts})
            for post in posts:
                intake = desk.intakes.get(post.form_id)
                if intake is None:
                    answers.append(FormNotFound(post.form_id))
                    continue
                try:
                    submission = accept(
                        intake.form,
                        post,
                        limits=self.limits,
                        submission_id=self.ids.submission(),
                        received_at=desk.now,
                    )
                except PostRefused as refusal:
                    answers.append(refusal)
                    continue
                message = submission_message(submission, self.ids.message())
                submissions.append(submission)
                messages.append(message)
                owed += fan_out(message, intake.destinations, now=desk.now, new_id=self.ids.delivery)
                answers.append(receipt(submission))
            if submissions:
                await self.submissions.add(submissions)
                await self.queue.owe(messages, owed)
        return answers


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateForm:
    """Opens a public address for posts. Raises `AlreadyExists` when the id is taken."""

    forms: FormRepository

    async def __call__(self, form: NewForm) -> Form:
        return await self.forms.add(form)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowForm:
    """Raises `NotFound`."""

    forms: FormRepository

    async def __call__(self, form_id: FormId) -> Form:
        return await self.forms.get(form_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListForms:
    forms: FormRepository

    async def __call__(self, *, after: str | None, limit: int) -> Sequence[Form]:
        return await self.forms.page(after=after, limit=limit)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowSubmission:
    """Raises `NotFound`."""

    submissions: SubmissionRepository

    async def __call__(self, submission_id: SubmissionId) -> Submission:
        return await self.submissions.get(submission_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class EraseSubmission:
    """Removes a submission's values from wherever they are, and fails what waits of it. Raises `NotFound`."""

    submissions: SubmissionRepository
    queue: DeliveryQueue
    transactions: Transactions

    async def __call__(self, submission_id: SubmissionId) -> None:
        async with self.transactions.begin():
            await self.queue.withdraw_submission(submission_id)
            await self.submissions.erase(submission_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListSubmissions:
    """The newest first."""

    submissions: SubmissionRepository

    async def __call__(
        self, *, form_id: FormId | None, before: str | None, limit: int
    ) -> Sequence[Submission]:
        return await self.submissions.page(form_id=form_id, before=before, limit=limit)
