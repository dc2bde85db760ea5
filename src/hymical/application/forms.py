"""Forms and what is posted to them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from hymical.domain.deliveries import fan_out
from hymical.domain.errors import FormNotFound, PostRefused
from hymical.domain.forms import (
    Earlier,
    Form,
    NewForm,
    PostedForm,
    Receipt,
    Submission,
    accept,
    as_earlier,
    next_address,
    receipt,
    receipt_of_earlier,
    repeats,
    window_of,
)
from hymical.domain.ids import FormId, SubmissionId
from hymical.domain.limits import IntakeLimits, RateLimits, Standing, check_within
from hymical.domain.messages import submission_message
from hymical.ports.deliveries import DeliveryQueue
from hymical.ports.exports import ExportStore
from hymical.ports.forms import (
    Arrival,
    FormRepository,
    IntakeDesk,
    SubmissionFilter,
    SubmissionPage,
    SubmissionPlace,
    SubmissionRepository,
)
from hymical.ports.ids import Ids
from hymical.ports.limits import Asked, Bucket, Decision, RateLimiter
from hymical.ports.transactions import Transactions


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedPosts:
    """A batch of posts, each a submission to store or refused, and nothing of it stored yet."""

    posts: Sequence[PostedForm]
    desk: IntakeDesk
    decisions: Sequence[Decision]
    verdicts: Sequence[Submission | PostRefused]


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptPosts:
    """Stores posts and the deliveries they owe, all at once, and wakes the workers with them.

    Each post first takes from the rate limits, also one that is refused for another reason then. It gets its
    receipt, or the refusal that it earned; a refused one takes nothing from its neighbours. One
    that repeats another gets that one's receipt, and is not stored.

    Raises:
        StorageUnavailable: nothing was stored, as far as can be known.
        FormNotFound: nothing was stored, for the form of one was deleted meanwhile.
    """

    forms: FormRepository
    submissions: SubmissionRepository
    ids: Ids
    limiter: RateLimiter
    limits: IntakeLimits
    rate_limits: RateLimits
    duplicate_window: timedelta

    async def __call__(self, posts: Sequence[PostedForm]) -> Sequence[Receipt | PostRefused]:
        return await self.store(await self.judge(posts)) if posts else []

    async def judge(self, posts: Sequence[PostedForm]) -> JudgedPosts:
        """The first of the two steps; raises `StorageUnavailable`."""
        desk = await self.forms.intake({post.form_id for post in posts})
        decisions = await self._spend(posts, desk)
        verdicts = [
            decision.refusal or self._judge(post, desk)
            for post, decision in zip(posts, decisions, strict=True)
        ]
        return JudgedPosts(posts=posts, desk=desk, decisions=decisions, verdicts=verdicts)

    async def store(self, judged: JudgedPosts) -> Sequence[Receipt | PostRefused]:
        """The second step, with the answers to all of the batch; raises what this class does."""
        desk = judged.desk
        batch = _Batch([one for one in judged.verdicts if isinstance(one, Submission)])
        arrivals = [self._arrival(one, desk) for one in batch.new]
        earlier = await self.submissions.receive(arrivals) if arrivals else {}
        answers = list[Receipt | PostRefused]()
        for post, verdict, decision in zip(judged.posts, judged.verdicts, judged.decisions, strict=True):
            answer: Receipt | PostRefused
            if isinstance(verdict, PostRefused):
                answer = verdict
            else:
                continue_at = next_address(desk.intakes[post.form_id].form, post)
                answer = batch.answer(verdict, earlier, continue_at, decision.standing)
            if isinstance(answer, PostRefused):
                answer.standing = decision.standing
            answers.append(answer)
        return answers

    async def _spend(self, posts: Sequence[PostedForm], desk: IntakeDesk) -> Sequence[Decision]:
        of_source = self.rate_limits.source
        if of_source is None and self.rate_limits.form is None:
            return [Decision()] * len(posts)
        return await self.limiter.spend(
            [
                Asked(
                    source=Bucket.of_source(post.source, of_source) if of_source and post.source else None,
                    form=self._form_bucket(post.form_id, desk),
                )
                for post in posts
            ]
        )

    def _form_bucket(self, form_id: FormId, desk: IntakeDesk) -> Bucket | None:
        intake = desk.intakes.get(form_id)
        if intake is None or self.rate_limits.form is None:
            # an id that was made up gets no bucket of its own
            return None
        return Bucket.of_form(form_id, intake.form.limits.rate_limit or self.rate_limits.form)

    def _judge(self, post: PostedForm, desk: IntakeDesk) -> Submission | PostRefused:
        intake = desk.intakes.get(post.form_id)
        if intake is None:
            return FormNotFound(post.form_id)
        try:
            return accept(
                intake.form,
                post,
                limits=self.limits,
                duplicate_window=self.duplicate_window,
                submission_id=self.ids.submission(),
                received_at=desk.now,
            )
        except PostRefused as refusal:
            return refusal

    def _arrival(self, submission: Submission, desk: IntakeDesk) -> Arrival:
        intake = desk.intakes[submission.form_id]
        repeats_since = submission.received_at - window_of(intake.form, self.duplicate_window)
        if submission.is_spam:
            return Arrival(submission=submission, repeats_since=repeats_since)
        message = submission_message(submission, self.ids.message())
        return Arrival(
            submission=submission,
            repeats_since=repeats_since,
            message=message,
            deliveries=fan_out(message, intake.destinations, now=desk.now, new_id=self.ids.delivery),
        )


class _Batch:
    """Submissions of one batch, of which the first of those that repeat each other is `new`."""

    def __init__(self, submissions: Sequence[Submission]) -> None:
        self._firsts: dict[object, Submission] = {}
        self.new = [one for one in submissions if self._firsts.setdefault(_sameness(one), one) is one]

    def answer(
        self,
        submission: Submission,
        stored: Mapping[SubmissionId, Earlier],
        continue_at: str | None,
        standing: Standing | None,
    ) -> Receipt | PostRefused:
        """`stored` is what the new ones repeat that were not stored."""
        first = self._firsts[_sameness(submission)]
        earlier = stored.get(first.id)
        if earlier is None:
            if first is submission:
                return receipt(submission, continue_at, standing)
            earlier = as_earlier(first)
        try:
            same = repeats(submission, earlier)
        except PostRefused as conflict:
            return conflict
        return receipt_of_earlier(same, submission.form_id, continue_at, standing)


def _sameness(submission: Submission) -> object:
    return submission.repetition or submission.id


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateForm:
    """Opens a public address for posts.

    Raises:
        AlreadyExists: the id is taken.
        InvalidValue: it asks for more than the operator's limits.
    """

    forms: FormRepository
    limits: IntakeLimits

    async def __call__(self, form: NewForm) -> Form:
        check_within(form.limits, self.limits)
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
class ChangeForm:
    """Changes a form's name, state or rules, field by field. Raises `NotFound` or `InvalidValue`."""

    forms: FormRepository
    transactions: Transactions
    limits: IntakeLimits

    async def __call__(self, form_id: FormId, changes: Mapping[str, Any]) -> Form:
        async with self.transactions.begin():
            form = replace(await self.forms.lock(form_id), **changes)
            if "limits" in changes:
                check_within(form.limits, self.limits)
            await self.forms.save(form)
        return form


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteForm:
    """Removes a form that holds no submissions, with its destinations. Raises `NotFound` or `FormNotEmpty`."""

    forms: FormRepository
    transactions: Transactions

    async def __call__(self, form_id: FormId) -> None:
        async with self.transactions.begin():
            await self.forms.delete(form_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkGood:
    """Takes a submission out of the spam and delivers it, once. Raises `NotFound` or `NotSpam`."""

    forms: FormRepository
    submissions: SubmissionRepository
    queue: DeliveryQueue
    transactions: Transactions
    ids: Ids

    async def __call__(self, submission_id: SubmissionId) -> Submission:
        async with self.transactions.begin():
            submission = await self.submissions.mark_good(submission_id)
            desk = await self.forms.intake({submission.form_id})
            message = submission_message(submission, self.ids.message())
            destinations = desk.intakes[submission.form_id].destinations
            owed = fan_out(message, destinations, now=desk.now, new_id=self.ids.delivery)
            await self.queue.owe([message], owed)
        return submission


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
    exports: ExportStore
    transactions: Transactions

    async def __call__(self, submission_id: SubmissionId) -> None:
        async with self.transactions.begin():
            await self.exports.withdraw_holding(submission_id)
            await self.queue.withdraw_submission(submission_id)
            await self.submissions.erase(submission_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListSubmissions:
    """The newest first; a page looks at `looks` of them at most, whatever is searched for."""

    submissions: SubmissionRepository
    looks: int = 2_000

    async def __call__(
        self, which: SubmissionFilter, *, behind: SubmissionPlace | None, limit: int
    ) -> SubmissionPage:
        return await self.submissions.page(which, behind=behind, limit=limit, looks=self.looks)
