"""Readable test data: a_form(), a_delivery() and the like; each call makes new ids."""

import json
from datetime import datetime, timedelta
from uuid import uuid4

from hymical.adapters.system.ids import SystemIds
from hymical.domain.deliveries import Attempt, Delivery, DeliveryState
from hymical.domain.destinations import Destination, DestinationState, NewDestination
from hymical.domain.forms import Fields, Form, NewForm, Submission
from hymical.domain.ids import FormId, LeaseToken
from hymical.domain.jobs import Job, Json, NewJob, Priority, Question
from hymical.domain.leases import JobLease
from hymical.domain.messages import Message, submission_message
from hymical.domain.outcomes import Answer, AttemptOutcome, Outcome
from hymical.domain.retries import RetryPolicy
from hymical.domain.signing import Secret, SigningSecret, new_signing_secret
from tests.clocks import START

ids = SystemIds()

FIELDS: Fields = (("email", ("zoe@example.com",)), ("topics", ("billing", "api")))
POLICY = RetryPolicy(waits=(timedelta(seconds=5), timedelta(minutes=5)))
LEASE = timedelta(seconds=60)


def a_secret() -> SigningSecret:
    return SigningSecret(value=new_signing_secret(ids.secret_bytes()))


def a_new_form(form_id: str = "contact", *, is_active: bool = True) -> NewForm:
    return NewForm(id=FormId(form_id), name="Contact", is_active=is_active)


def a_form(form_id: str = "contact", *, is_active: bool = True) -> Form:
    return Form(id=FormId(form_id), name="Contact", is_active=is_active, created_at=START)


def a_new_destination(
    form_id: str = "contact", url: str = "https://example.com/hook", *, max_in_flight: int = 100
) -> NewDestination:
    return NewDestination(
        id=ids.destination(),
        form_id=FormId(form_id),
        url=url,
        secrets=(a_secret(),),
        headers=(("x-api-key", Secret("header value")),),
        max_in_flight=max_in_flight,
    )


def a_destination(state: DestinationState = DestinationState.ACTIVE) -> Destination:
    return Destination(
        id=ids.destination(),
        form_id=FormId("contact"),
        url="https://example.com/hook",
        state=state,
        secrets=(a_secret(),),
        created_at=START,
    )


def a_submission(
    form_id: str = "contact", *, fields: Fields = FIELDS, at: datetime = START, is_spam: bool = False
) -> Submission:
    return Submission(
        id=ids.submission(), form_id=FormId(form_id), received_at=at, fields=fields, is_spam=is_spam
    )


def a_message(submission: Submission | None = None) -> Message:
    return submission_message(submission or a_submission(), ids.message())


def a_delivery(
    message: Message | None = None,
    destination: Destination | None = None,
    *,
    due_at: datetime = START,
    lost_in_a_row: int = 0,
    cycle_attempt_count: int = 0,
) -> Delivery:
    return Delivery(
        id=ids.delivery(),
        message_id=(message or a_message()).id,
        destination_id=destination.id if destination else ids.destination(),
        state=DeliveryState.PENDING,
        due_at=due_at,
        lost_in_a_row=lost_in_a_row,
        cycle_attempt_count=cycle_attempt_count,
        created_at=START,
    )


def an_attempt(number: int, outcome: AttemptOutcome = AttemptOutcome.SUCCEEDED, status: int = 200) -> Attempt:
    return Attempt(
        number=number,
        started_at=START,
        duration=timedelta(milliseconds=12),
        outcome=outcome,
        response_status=status,
        response_excerpt="ok",
    )


def an_answer(outcome: Outcome, status: int | None = None) -> Answer:
    return Answer(outcome=outcome, duration=timedelta(milliseconds=12), response_status=status)


def a_new_job(
    queue: str = "default",
    type: str = "count",
    *,
    payload: Json | None = None,
    priority: Priority = Priority.NORMAL,
    max_retries: int = 3,
    run_at: datetime | None = None,
    unique_key: str | None = None,
) -> NewJob:
    return NewJob(
        id=ids.job(),
        queue=queue,
        type=type,
        version=1,
        payload=json.dumps(payload or {"up_to": 3}),
        priority=priority,
        max_retries=max_retries,
        run_at=run_at,
        unique_key=unique_key,
    )


def a_job(*, retry_count: int = 0, max_retries: int = 3, lost_in_a_row: int = 0) -> Job:
    """One that is in somebody's hands."""
    new = a_new_job(max_retries=max_retries)
    return Job(
        id=new.id,
        queue=new.queue,
        type=new.type,
        version=new.version,
        payload=json.loads(new.payload),
        priority=new.priority,
        claim_count=1,
        retry_count=retry_count,
        max_retries=new.max_retries,
        lost_in_a_row=lost_in_a_row,
        lease=JobLease(job_id=new.id, token=LeaseToken(str(uuid4()))),
    )


def a_question(
    key: str = "send", *, choices: tuple[str, ...] = ("yes", "no"), deadline: timedelta | None = None
) -> Question:
    default = None if deadline is None else "no"
    return Question(key=key, text="Send them all?", choices=choices, deadline=deadline, default=default)
