"""Messages, byte for byte as they are signed and sent."""

from dataclasses import replace
from datetime import timedelta

import pytest

from hymical.domain.destinations import DestinationEvent, Trouble
from hymical.domain.forms import Submission
from hymical.domain.ids import OPERATOR, DestinationId, FormId, MessageId, SubmissionId
from hymical.domain.messages import (
    delivery_failed_message,
    destination_event_message,
    destination_test_message,
    submission_message,
)
from tests.builders import a_destination, a_submission
from tests.clocks import START

AT = START + timedelta(hours=24)
DESTINATION = replace(a_destination(), id=DestinationId("dst_1"), url="https://example.com/hook?ä=1")
TROUBLE = Trouble(failing_since=START, failures_in_a_row=7)


def test_a_submission_s_bytes_are_exactly_these() -> None:
    submission = Submission(
        id=SubmissionId("sub_1"),
        form_id=FormId("contact"),
        received_at=START + timedelta(microseconds=1),
        fields=(("z", ("2", "1")), ("e mail", ("zoë@例.jp",)), ("a", ('"\\\n\u2028😀/',)), ("", ("",))),
    )

    message = submission_message(submission, MessageId("evt_1"))

    assert (
        message.body
        == (
            '{"type":"submission.received","timestamp":"2026-11-29T12:00:00.000001Z",'
            '"data":{"submission_id":"sub_1","form_id":"contact","received_at":"2026-11-29T12:00:00.000001Z",'
            '"fields":{"z":["2","1"],"e mail":["zoë@例.jp"],"a":["\\"\\\\\\n\u2028😀/"],"":[""]}}}'
        ).encode()
    )
    assert (message.id, message.type) == ("evt_1", "submission.received")
    assert (message.submission_id, message.form_id) == ("sub_1", "contact")


def test_a_submission_s_message_is_the_same_whenever_it_is_made() -> None:
    submission = a_submission()

    assert submission_message(submission, MessageId("evt_1")) == submission_message(
        submission, MessageId("evt_1")
    )


@pytest.mark.parametrize("event", DestinationEvent)
def test_an_event_s_bytes_are_exactly_these(event: DestinationEvent) -> None:
    message = destination_event_message(event, DESTINATION, TROUBLE, MessageId("evt_1"), AT)

    assert (
        message.body
        == (
            f'{{"type":"{event.value}","timestamp":"2026-11-30T12:00:00.000000Z",'
            '"data":{"destination_id":"dst_1","form_id":"contact","url":"https://example.com/hook?ä=1",'
            '"failing_since":"2026-11-29T12:00:00.000000Z"}}'
        ).encode()
    )
    assert (message.id, message.type) == ("evt_1", event.value)
    # the operator's messages belong to no form, so that they are in no form's list
    assert (message.submission_id, message.form_id) == (None, None)


def test_a_destination_that_was_well_until_it_was_gone_has_not_been_failing() -> None:
    message = destination_event_message(DestinationEvent.DISABLED, DESTINATION, None, MessageId("evt_1"), AT)

    assert message.body.endswith(b'"failing_since":null}}')


def test_a_failed_delivery_s_bytes_are_exactly_these() -> None:
    message = delivery_failed_message(
        delivery_id="dlv_1",
        submission_id="sub_1",
        destination=DESTINATION,
        reason="exhausted",
        message_id=MessageId("evt_1"),
        at=AT,
    )

    assert (
        message.body
        == (
            '{"type":"delivery.failed","timestamp":"2026-11-30T12:00:00.000000Z",'
            '"data":{"delivery_id":"dlv_1","submission_id":"sub_1","destination_id":"dst_1","form_id":"contact",'
            '"url":"https://example.com/hook?ä=1","reason":"exhausted"}}'
        ).encode()
    )
    assert (message.id, message.type) == ("evt_1", "delivery.failed")
    assert (message.submission_id, message.form_id) == (None, None)


def test_a_test_s_bytes_are_exactly_these() -> None:
    message = destination_test_message(DESTINATION, MessageId("evt_1"), AT)

    assert message.body == (
        b'{"type":"destination.test","timestamp":"2026-11-30T12:00:00.000000Z",'
        b'"data":{"destination_id":"dst_1","form_id":"contact"}}'
    )
    assert (message.type, message.submission_id, message.form_id) == ("destination.test", None, "contact")


def test_neither_secrets_nor_headers_are_in_an_event() -> None:
    (secret,) = DESTINATION.secrets
    operator = replace(DESTINATION, id=OPERATOR, form_id=None)

    for event in DestinationEvent:
        body = destination_event_message(event, operator, TROUBLE, MessageId("evt_1"), AT).body
        assert secret.value.reveal().encode() not in body
        assert b'"form_id":null' in body
