"""Forms and submissions in PostgreSQL."""

import operator
from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Row,
    Select,
    and_,
    func,
    insert,
    literal,
    or_,
    select,
    text,
    true,
    tuple_,
    update,
)

from hymical.adapters.postgres.errors import translated
from hymical.adapters.postgres.rows import DestinationRows
from hymical.adapters.postgres.statements import as_json
from hymical.adapters.postgres.tables import forms, submissions
from hymical.adapters.postgres.transactions import PostgresTransactions
from hymical.domain.errors import (
    AlreadyExists,
    FormNotEmpty,
    FormNotFound,
    NotFound,
    NotSpam,
    StorageUnavailable,
)
from hymical.domain.forms import Earlier, Form, NewForm, Submission
from hymical.domain.ids import FormId, SubmissionId
from hymical.domain.limits import FormLimits, RateLimit
from hymical.ports.clock import Clock
from hymical.ports.forms import Arrival, Intake, IntakeDesk, SubmissionFilter, SubmissionPage, SubmissionPlace
from hymical.ports.secrets import SecretCipher

_SECOND = timedelta(seconds=1)
_SOUGHT_AGAIN = 5
_OF_A_FORM = ("submissions_form_id_fkey", "messages_form_id_fkey", "deliveries_destination_id_fkey")
_HOLDS = """EXISTS (
    SELECT FROM json_each(seen.fields) AS field (name, held)
    CROSS JOIN LATERAL (
        SELECT field.name UNION ALL SELECT value FROM json_array_elements_text(field.held)
    ) AS said (text)
    WHERE strpos(lower(said.text), lower(:text)) > 0
)"""


class PostgresFormRepository:
    def __init__(self, transactions: PostgresTransactions, clock: Clock, cipher: SecretCipher) -> None:
        self._transactions = transactions
        self._clock = clock
        self._rows = DestinationRows(cipher)

    async def add(self, form: NewForm) -> Form:
        values = {
            "id": form.id,
            "name": form.name,
            "is_active": form.is_active,
            "redirect_url": form.redirect_url,
            "allowed_origins": list(form.allowed_origins),
            "honeypot_field": form.honeypot_field,
            "duplicate_window": form.duplicate_window,
            "limits": _stored_limits(form.limits),
            "created_at": self._clock.pinned() or func.clock_timestamp(),
        }
        with translated({"forms_pkey": AlreadyExists("form", form.id)}):
            async with self._transactions.connection() as connection:
                row = (await connection.execute(insert(forms).values(values).returning(forms))).one()
        return _form(row)

    async def get(self, form_id: FormId) -> Form:
        with translated():
            async with self._transactions.connection() as connection:
                row = (await connection.execute(select(forms).where(forms.c.id == form_id))).one_or_none()
        if row is None:
            raise NotFound("form", form_id)
        return _form(row)

    async def page(self, *, after: str | None, limit: int) -> Sequence[Form]:
        query = select(forms).order_by(forms.c.id).limit(limit)
        if after is not None:
            query = query.where(forms.c.id > after)
        with translated():
            async with self._transactions.connection() as connection:
                return [_form(row) for row in await connection.execute(query)]

    async def lock(self, form_id: FormId) -> Form:
        query = select(forms).where(forms.c.id == form_id).with_for_update(key_share=True)
        with translated():
            async with self._transactions.connection() as connection:
                row = (await connection.execute(query)).one_or_none()
        if row is None:
            raise NotFound("form", form_id)
        return _form(row)

    async def save(self, form: Form) -> None:
        values = {
            "name": form.name,
            "is_active": form.is_active,
            "redirect_url": form.redirect_url,
            "allowed_origins": list(form.allowed_origins),
            "honeypot_field": form.honeypot_field,
            "duplicate_window": form.duplicate_window,
            "limits": _stored_limits(form.limits),
        }
        with translated():
            async with self._transactions.connection() as connection:
                await connection.execute(update(forms).where(forms.c.id == form.id).values(values))

    async def delete(self, form_id: FormId) -> None:
        not_empty = {"submissions_form_id_fkey": FormNotEmpty(form_id)}
        if not await self._transactions.run("delete_form", {"id": form_id}, constraints=not_empty):
            raise NotFound("form", form_id)

    async def intake(self, form_ids: Collection[FormId]) -> IntakeDesk:
        parameters = {"form_ids": list(form_ids), "now": self._clock.pinned()}
        found = await self._transactions.run("load_intake", parameters)
        intakes: dict[FormId, Intake] = {}
        for row in found:
            if row.form_id is None:
                continue
            form = _form_of({"id": row.form_id, **row._asdict()})
            known = intakes.get(form.id)
            destinations = known.destinations if known else ()
            if row.destination_id is not None:
                destinations += (self._rows.joined(row._asdict()),)
            intakes[form.id] = Intake(form=form, destinations=destinations)
        return IntakeDesk(now=found[0].now, intakes=intakes)


class PostgresSubmissionRepository:
    def __init__(self, transactions: PostgresTransactions) -> None:
        self._transactions = transactions

    async def receive(self, arrivals: Sequence[Arrival]) -> Mapping[SubmissionId, Earlier]:
        left, earlier = list(arrivals), dict[SubmissionId, Earlier]()
        for _ in range(_SOUGHT_AGAIN):
            if not left:
                break
            gone = dict.fromkeys(_OF_A_FORM, FormNotFound(left[0].submission.form_id))
            rows = await self._transactions.run("receive_posts", _received(left), constraints=gone)
            kept_out = {row.id for row in rows}
            left = [one for one in left if one.submission.id in kept_out]
            if left:
                earlier |= await self._earlier([one.submission for one in left])
                # one that was erased in between has set its key free
                left = [one for one in left if one.submission.id not in earlier]
        if left:
            raise StorageUnavailable("what these posts repeat comes and goes too fast")
        return earlier

    async def _earlier(self, new: Sequence[Submission]) -> Mapping[SubmissionId, Earlier]:
        parameters = {
            "ids": [submission.id for submission in new],
            "form_ids": [submission.form_id for submission in new],
            "idempotency_keys": [submission.idempotency_key for submission in new],
            "duplicate_keys": [submission.duplicate_key for submission in new],
        }
        return {
            row.id: Earlier(
                submission_id=row.earlier_id,
                received_at=row.received_at,
                field_count=len(row.fields),
                fingerprint=row.fingerprint,
            )
            for row in await self._transactions.run("find_earlier", parameters)
        }

    async def mark_good(self, submission_id: SubmissionId) -> Submission:
        command = (
            update(submissions)
            .where(submissions.c.id == submission_id, submissions.c.is_spam)
            .values(is_spam=False)
            .returning(submissions)
        )
        with translated():
            async with self._transactions.connection() as connection:
                row = (await connection.execute(command)).one_or_none()
        if row is None:
            raise NotSpam((await self.get(submission_id)).id)
        return submission_of(row)

    async def get(self, submission_id: SubmissionId) -> Submission:
        query = select(submissions).where(submissions.c.id == submission_id)
        with translated():
            async with self._transactions.connection() as connection:
                row = (await connection.execute(query)).one_or_none()
        if row is None:
            raise NotFound("submission", submission_id)
        return submission_of(row)

    async def erase(self, submission_id: SubmissionId) -> None:
        lock = select(submissions.c.id).where(submissions.c.id == submission_id).with_for_update()
        with translated():
            async with self._transactions.together() as connection:
                # whoever makes a message of it right now ends first, and the statement behind sees that message
                await connection.execute(lock)
                erased = await self._transactions.run("erase_submission", {"id": submission_id})
        if not erased:
            raise NotFound("submission", submission_id)

    async def page(
        self, which: SubmissionFilter, *, behind: SubmissionPlace | None, limit: int, looks: int
    ) -> SubmissionPage:
        query = looked_at(which, behind, limit=limit, looks=looks)
        with translated():
            async with self._transactions.connection() as connection:
                rows = (await connection.execute(query)).all()
        found = [row for row in rows if row.wanted]
        last = (
            found[limit - 1] if len(found) > limit else rows[-1] if rows and rows[-1].nth == looks else None
        )
        return SubmissionPage(
            submissions=[submission_of(row) for row in found[:limit]],
            end=None if last is None else SubmissionPlace(received_at=last.received_at, id=last.id),
        )


def looked_at(
    which: SubmissionFilter, behind: SubmissionPlace | None, *, limit: int, looks: int
) -> Select[*tuple[Any, ...]]:
    """What is `wanted`, and one more if there is; and the last that may be looked at, the one with that `nth`."""
    # no plain equality, which would let the planner read all forms by their time and skip what is of others
    form = () if which.form_id is None else (which.form_id,)
    place = (*(submissions.c.form_id for _ in form), submissions.c.received_at, submissions.c.id)
    newest_first = tuple(column.desc() for column in place)

    def ending(*values: object) -> tuple[ColumnElement[Any], ColumnElement[Any]]:
        given = (*form, *values)
        return tuple_(*place[: len(given)]), tuple_(*(literal(value) for value in given))

    # one bound from above: an index is read from one of several on, and what lies between them is looked at too
    last: tuple[object, ...] = () if which.received_before is None else (which.received_before,)
    if behind is not None and (which.received_before is None or behind.received_at < which.received_before):
        last = (behind.received_at, behind.id)
    bounds = []
    if form:
        bounds.append(submissions.c.form_id >= which.form_id)
    if form and not last:
        bounds.append(submissions.c.form_id <= which.form_id)
    if which.received_after is not None:
        bounds.append(operator.gt(*ending(which.received_after)))
    if last:
        bounds.append(operator.lt(*ending(*last)))
    reached = select(submissions, func.row_number().over(order_by=newest_first).label("nth")).where(*bounds)
    # the indexes give this order, so that no more is read than is needed to fill the page
    seen = reached.order_by(*newest_first).limit(looks).subquery("seen")
    holds = true() if which.text is None else text(_HOLDS).bindparams(text=which.text)
    wanted = and_(seen.c.is_spam.is_(which.spam), holds)
    return (
        select(seen, wanted.label("wanted"))
        .where(or_(wanted, seen.c.nth == looks))
        .order_by(seen.c.nth)
        .limit(limit + 1)
    )


def _received(arrivals: Sequence[Arrival]) -> dict[str, str]:
    """Two parameters, whatever the batch holds: the driver takes longer over arrays than over all else."""
    posts, owed = [], []
    for arrival in arrivals:
        submission, message = arrival.submission, arrival.message
        post = {
            "id": submission.id,
            "form_id": submission.form_id,
            "received_at": submission.received_at,
            "fields": as_json(dict(submission.fields)),
            "is_spam": submission.is_spam,
            "fingerprint": submission.fingerprint.hex(),
            "idempotency_key": submission.idempotency_key,
            "duplicate_key": submission.duplicate_key and submission.duplicate_key.hex(),
            "repeats_since": arrival.repeats_since,
        }
        if message is not None:
            post |= {"message_id": message.id, "type": message.type, "body": message.body.decode()}
        posts.append(post)
        owed += [
            {
                "id": delivery.id,
                "submission_id": submission.id,
                "message_id": delivery.message_id,
                "destination_id": delivery.destination_id,
                "state": delivery.state,
                "due_at": delivery.due_at,
                "created_at": delivery.created_at,
                "completed_at": delivery.completed_at,
                "failure_reason": delivery.failure_reason,
            }
            for delivery in arrival.deliveries
        ]
    return {"posts": as_json(posts), "owed": as_json(owed)}


def _form(row: Row[*tuple[object, ...]]) -> Form:
    return _form_of(row._mapping)  # noqa: SLF001


def _form_of(stored: Mapping[Any, Any]) -> Form:
    return Form(
        id=stored["id"],
        name=stored["name"],
        is_active=stored["is_active"],
        redirect_url=stored["redirect_url"],
        allowed_origins=tuple(stored["allowed_origins"]),
        honeypot_field=stored["honeypot_field"],
        duplicate_window=stored["duplicate_window"],
        limits=_limits(stored["limits"]),
        created_at=stored["created_at"],
    )


def _stored_limits(limits: FormLimits) -> dict[str, Any]:
    rate = limits.rate_limit
    stored = {
        "max_fields": limits.max_fields,
        "max_field_name_length": limits.max_field_name_length,
        "max_field_value_length": limits.max_field_value_length,
        "rate_limit": rate and {"requests": rate.requests, "window_seconds": rate.window // _SECOND},
    }
    return {name: value for name, value in stored.items() if value is not None}


def _limits(stored: Mapping[str, Any]) -> FormLimits:
    rate = stored.get("rate_limit")
    return FormLimits(
        max_fields=stored.get("max_fields"),
        max_field_name_length=stored.get("max_field_name_length"),
        max_field_value_length=stored.get("max_field_value_length"),
        rate_limit=rate
        and RateLimit(requests=rate["requests"], window=timedelta(seconds=rate["window_seconds"])),
    )


def submission_of(row: Any) -> Submission:  # noqa: ANN401  of SQLAlchemy or of the driver
    """A submission out of a row that holds the columns of its table."""
    return Submission(
        id=row.id,
        form_id=row.form_id,
        received_at=row.received_at,
        fields=tuple((name, tuple(values)) for name, values in row.fields.items()),
        is_spam=row.is_spam,
        fingerprint=row.fingerprint,
        idempotency_key=row.idempotency_key,
        duplicate_key=row.duplicate_key,
    )
