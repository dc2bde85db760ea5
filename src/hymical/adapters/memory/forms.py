"""Forms and submissions in memory."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from hymical.adapters.memory.store import DELIVERIES, MemoryStore
from hymical.domain.errors import AlreadyExists, FormNotEmpty, FormNotFound, NotFound, NotSpam
from hymical.domain.forms import Earlier, Form, NewForm, Submission, as_earlier
from hymical.domain.ids import FormId, SubmissionId
from hymical.ports.clock import Clock
from hymical.ports.forms import Arrival, Intake, IntakeDesk, SubmissionFilter, SubmissionPage, SubmissionPlace


class MemoryFormRepository:
    def __init__(self, store: MemoryStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def add(self, form: NewForm) -> Form:
        if form.id in self._store.rows.forms:
            raise AlreadyExists("form", form.id)
        stored = Form(
            id=form.id,
            name=form.name,
            is_active=form.is_active,
            redirect_url=form.redirect_url,
            allowed_origins=form.allowed_origins,
            honeypot_field=form.honeypot_field,
            duplicate_window=form.duplicate_window,
            limits=form.limits,
            created_at=self._clock.now(),
        )
        self._store.rows.forms[form.id] = stored
        return stored

    async def get(self, form_id: FormId) -> Form:
        try:
            return self._store.rows.forms[form_id]
        except KeyError:
            raise NotFound("form", form_id) from None

    async def page(self, *, after: str | None, limit: int) -> Sequence[Form]:
        ids = sorted(form_id for form_id in self._store.rows.forms if after is None or form_id > after)
        return [self._store.rows.forms[form_id] for form_id in ids[:limit]]

    async def lock(self, form_id: FormId) -> Form:
        return await self.get(form_id)

    async def save(self, form: Form) -> None:
        self._store.rows.forms[form.id] = form

    async def delete(self, form_id: FormId) -> None:
        rows = self._store.rows
        await self.get(form_id)
        if any(submission.form_id == form_id for submission in rows.submissions.values()):
            raise FormNotEmpty(form_id)
        gone = {one.id for one in (rows.destinations | rows.deleted).values() if one.form_id == form_id}
        rows.deliveries = {key: one for key, one in rows.deliveries.items() if one.destination_id not in gone}
        rows.attempts = {key: one for key, one in rows.attempts.items() if key[0] in rows.deliveries}
        rows.messages = {key: one for key, one in rows.messages.items() if one.form_id != form_id}
        for destination_id in gone:
            rows.destinations.pop(destination_id, None)
            rows.deleted.pop(destination_id, None)
            rows.trouble.pop(destination_id, None)
        del rows.forms[form_id]

    async def intake(self, form_ids: Collection[FormId]) -> IntakeDesk:
        rows = self._store.rows
        return IntakeDesk(
            now=self._clock.now(),
            intakes={
                form_id: Intake(
                    form=rows.forms[form_id],
                    destinations=tuple(
                        destination
                        for _, destination in sorted(rows.destinations.items())
                        if destination.form_id == form_id
                    ),
                )
                for form_id in form_ids
                if form_id in rows.forms
            },
        )


class MemorySubmissionRepository:
    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    async def receive(self, arrivals: Sequence[Arrival]) -> Mapping[SubmissionId, Earlier]:
        rows = self._store.rows
        earlier = dict[SubmissionId, Earlier]()
        if any(arrival.submission.form_id not in rows.forms for arrival in arrivals):
            raise FormNotFound(arrivals[0].submission.form_id)
        for arrival in arrivals:
            new = arrival.submission
            same = self._earlier(new, arrival.repeats_since)
            if same is not None:
                earlier[new.id] = as_earlier(same)
                continue
            rows.submissions[new.id] = new
            if arrival.message is not None:
                rows.messages[arrival.message.id] = arrival.message
            rows.deliveries.update({delivery.id: delivery for delivery in arrival.deliveries})
            if any(delivery.due_at is not None for delivery in arrival.deliveries):
                self._store.ring(DELIVERIES)
        return earlier

    def _earlier(self, new: Submission, since: datetime) -> Submission | None:
        for one in sorted(
            self._store.rows.submissions.values(), key=lambda one: one.received_at, reverse=True
        ):
            by_key = new.idempotency_key is not None and one.idempotency_key == new.idempotency_key
            if by_key and one.form_id == new.form_id:
                return one
            by_content = new.duplicate_key is not None and one.duplicate_key == new.duplicate_key
            if by_content and one.received_at > since:
                return one
        return None

    async def mark_good(self, submission_id: SubmissionId) -> Submission:
        submission = await self.get(submission_id)
        if not submission.is_spam:
            raise NotSpam(submission_id)
        good = replace(submission, is_spam=False)
        self._store.rows.submissions[submission_id] = good
        return good

    async def get(self, submission_id: SubmissionId) -> Submission:
        try:
            return self._store.rows.submissions[submission_id]
        except KeyError:
            raise NotFound("submission", submission_id) from None

    async def erase(self, submission_id: SubmissionId) -> None:
        rows = self._store.rows
        if rows.submissions.pop(submission_id, None) is None:
            raise NotFound("submission", submission_id)
        emptied = {one.id for one in rows.messages.values() if one.submission_id == submission_id}
        for message_id in emptied:
            rows.messages[message_id] = replace(rows.messages[message_id], body=b"")
        for key, attempt in rows.attempts.items():
            if rows.deliveries[key[0]].message_id in emptied:
                rows.attempts[key] = replace(attempt, response_excerpt=None, error=None)

    async def page(
        self, which: SubmissionFilter, *, behind: SubmissionPlace | None, limit: int, looks: int
    ) -> SubmissionPage:
        asked_for = sorted(
            (one for one in self._store.rows.submissions.values() if _is_of(which, one, behind)),
            key=_place,
            reverse=True,
        )
        found: list[Submission] = []
        for one in asked_for[:looks]:
            if one.is_spam is which.spam and (which.text is None or _holds(one, which.text)):
                if len(found) == limit:
                    return SubmissionPage(submissions=found, end=_end(found[-1]))
                found.append(one)
        return SubmissionPage(
            submissions=found, end=_end(asked_for[looks - 1]) if len(asked_for) >= looks else None
        )


def _place(one: Submission) -> tuple[datetime, SubmissionId]:
    return one.received_at, one.id


def _end(one: Submission) -> SubmissionPlace:
    return SubmissionPlace(received_at=one.received_at, id=one.id)


def _is_of(which: SubmissionFilter, one: Submission, behind: SubmissionPlace | None) -> bool:
    return (
        (which.form_id is None or one.form_id == which.form_id)
        and (which.received_after is None or one.received_at > which.received_after)
        and (which.received_before is None or one.received_at < which.received_before)
        and (behind is None or _place(one) < (behind.received_at, behind.id))
    )


def _holds(one: Submission, text: str) -> bool:
    return any(text.lower() in said.lower() for name, values in one.fields for said in (name, *values))
