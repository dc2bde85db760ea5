"""Messages: what is delivered, as the exact bytes that are signed and sent."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from hymical.domain.alerts import Alert
from hymical.domain.destinations import Destination, DestinationEvent, Trouble
from hymical.domain.forms import Submission
from hymical.domain.ids import FormId, MessageId, SubmissionId
from hymical.domain.instants import rfc3339
from hymical.domain.keys import Key


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """What is delivered. `body` is stored once, and is what is signed and sent at every attempt."""

    id: MessageId
    type: str
    submission_id: SubmissionId | None
    form_id: FormId | None
    body: bytes


_JSON = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


def submission_message(submission: Submission, message_id: MessageId) -> Message:
    """Tells a destination of a submission."""
    return Message(
        id=message_id,
        type="submission.received",
        submission_id=submission.id,
        form_id=submission.form_id,
        body=_body(
            "submission.received",
            submission.received_at,
            {
                "submission_id": submission.id,
                "form_id": submission.form_id,
                "received_at": rfc3339(submission.received_at),
                "fields": dict(submission.fields),
            },
        ),
    )


def destination_test_message(destination: Destination, message_id: MessageId, at: datetime) -> Message:
    """Lets a person see whether a destination receives and verifies what it is sent."""
    data = {"destination_id": destination.id, "form_id": destination.form_id}
    return Message(
        id=message_id,
        type="destination.test",
        submission_id=None,
        form_id=destination.form_id,
        body=_body("destination.test", at, data),
    )


def destination_event_message(
    event: DestinationEvent,
    destination: Destination,
    trouble: Trouble | None,
    message_id: MessageId,
    at: datetime,
) -> Message:
    """Tells the operator that a destination is failing, was disabled, or is well again."""
    data = {
        "destination_id": destination.id,
        "form_id": destination.form_id,
        "url": destination.url,
        "failing_since": rfc3339(trouble.failing_since) if trouble else None,
    }
    return Message(id=message_id, type=event, submission_id=None, form_id=None, body=_body(event, at, data))


def delivery_failed_message(
    *,
    delivery_id: str,
    submission_id: str | None,
    destination: Destination,
    reason: str,
    message_id: MessageId,
    at: datetime,
) -> Message:
    """Tells the operator that a delivery failed, and why; the submission's values are not in it."""
    data = {
        "delivery_id": delivery_id,
        "submission_id": submission_id,
        "destination_id": destination.id,
        "form_id": destination.form_id,
        "url": destination.url,
        "reason": reason,
    }
    return Message(
        id=message_id,
        type="delivery.failed",
        submission_id=None,
        form_id=None,
        body=_body("delivery.failed", at, data),
    )


def alert_message(alert: Alert, type: str, message_id: MessageId, at: datetime) -> Message:
    """Tells the operator that work is left undone, or is done again, as `type` says."""
    data = {"queue": alert.subject} if alert.subject else {}
    return Message(id=message_id, type=type, submission_id=None, form_id=None, body=_body(type, at, data))


def key_expiring_message(key: Key, message_id: MessageId, at: datetime) -> Message:
    """Tells the operator that a key expires soon, or has expired since the last warning should have come."""
    assert key.expires_at is not None  # noqa: S101  one that never expires is not warned of
    data = {"key_id": key.id, "name": key.name, "expires_at": rfc3339(key.expires_at)}
    return Message(
        id=message_id,
        type="key.expiring",
        submission_id=None,
        form_id=None,
        body=_body("key.expiring", at, data),
    )


def _body(kind: str, at: datetime, data: Mapping[str, object]) -> bytes:
    payload = {"type": kind, "timestamp": rfc3339(at), "data": data}
    return _JSON.encode(payload).encode()
