"""Forms and submissions in memory."""

from collections.abc import Collection, Sequence
from dataclasses import replace

from hymical.adapters.memory.store import MemoryStore
from hymical.domain.errors import AlreadyExists, NotFound
from hymical.domain.forms import Form, NewForm, Submission
from hymical.domain.ids import FormId, SubmissionId
from hymical.ports.clock import Clock
from hymical.ports.forms import Intake, IntakeDesk


class MemoryFormRepository:
    def __init__(self, store: MemoryStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def add(self, form: NewForm) -> Form:
        if form.id in self._store.rows.forms:
            raise AlreadyExists("form", form.id)
        stored = Form(id=form.id, name=form.name, is_active=form.is_active, created_at=self._clock.now())
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

    async def add(self, submissions: Sequence[Submission]) -> None:
        self._store.rows.submissions.update({submission.id: submission for submission in submissions})

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

    async def page(self, *, form_id: FormId | None, before: str | None, limit: int) -> Sequence[Submission]:
        found = [
            submission
            for submission_id, submission in sorted(self._store.rows.submissions.items(), reverse=True)
            if (form_id is None or submission.form_id == form_id)
            and (before is None or submission_id < before)
        ]
        return found[:limit]
