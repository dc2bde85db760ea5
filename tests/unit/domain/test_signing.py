"""Signatures as receivers check them, and secrets that stay secret."""

import base64
import hashlib
import hmac
import logging
import traceback
from datetime import UTC, datetime, timedelta

import pytest
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from hymical.domain.errors import InvalidValue
from hymical.domain.signing import (
    Secret,
    SigningSecret,
    is_signing_secret,
    new_signing_secret,
    signature_headers,
)
from tests.builders import a_destination, a_secret
from tests.clocks import START

BODY = '{"name":"Zoë 😀"}'.encode()
SECOND = timedelta(seconds=1)


def signed(
    *secrets: SigningSecret, at: datetime = START, body: bytes = BODY, message_id: str = "evt_1"
) -> dict[str, str]:
    return dict(signature_headers(message_id=message_id, at=at, body=body, secrets=secrets))


def verified(secret: SigningSecret, headers: dict[str, str], body: bytes = BODY) -> bool:
    try:
        Webhook(secret.value.reveal()).verify(body, headers, json_parse=False)
    except WebhookVerificationError:
        return False
    return True


def test_an_independent_verifier_accepts_the_signature() -> None:
    secret = a_secret()

    headers = signed(secret, at=datetime.now(UTC))

    assert verified(secret, headers)
    assert not verified(secret, headers, BODY + b" ")
    assert not verified(secret, headers | {"webhook-id": "evt_2"})
    assert not verified(a_secret(), headers)


def test_the_published_example_of_the_specification_is_signed_alike() -> None:
    headers = signed(
        SigningSecret(value=Secret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")),
        at=datetime.fromtimestamp(1_614_265_330, UTC),
        body=b'{"test": 2432232314}',
        message_id="msg_p5jXN8AQM9LWM0D4loKWxJek",
    )

    assert headers == {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }


def test_the_signature_is_what_one_computes_by_hand() -> None:
    key = bytes(range(32))

    headers = signed(SigningSecret(value=new_signing_secret(key)), at=START + timedelta(microseconds=999_999))

    by_hand = hmac.new(key, b"evt_1.1795953600." + BODY, hashlib.sha256).digest()
    assert headers["webhook-timestamp"] == "1795953600"
    assert headers["webhook-signature"] == "v1," + base64.b64encode(by_hand).decode()


def test_the_three_headers_come_in_this_order() -> None:
    headers = signature_headers(message_id="evt_1", at=START, body=BODY, secrets=(a_secret(),))

    assert [name for name, _ in headers] == ["webhook-id", "webhook-timestamp", "webhook-signature"]


def test_bytes_that_are_not_text_are_signed_as_they_are() -> None:
    key, body = bytes(32), b"\xff\x00\n"

    headers = signed(SigningSecret(value=new_signing_secret(key)), body=body)

    by_hand = hmac.new(key, b"evt_1.1795953600.\xff\x00\n", hashlib.sha256).digest()
    assert headers["webhook-signature"] == "v1," + base64.b64encode(by_hand).decode()


def test_each_valid_secret_signs_so_that_receivers_can_change_over_in_peace() -> None:
    old, new = a_secret(), a_secret()

    headers = signed(new, old, at=datetime.now(UTC))

    assert verified(old, headers)
    assert verified(new, headers)
    assert len(headers["webhook-signature"].split(" ")) == 2


def test_a_secret_signs_until_its_end_and_no_longer() -> None:
    old, new = SigningSecret(value=a_secret().value, valid_until=START), a_secret()

    assert len(signed(new, old, at=START - SECOND / 1_000)["webhook-signature"].split(" ")) == 2
    assert signed(new, old, at=START) == signed(new, at=START)


def test_a_new_attempt_has_a_new_signature() -> None:
    secret = a_secret()

    assert signed(secret)["webhook-signature"] != signed(secret, at=START + SECOND)["webhook-signature"]


@pytest.mark.parametrize("size", [24, 32, 64])
def test_a_secret_is_made_of_24_to_64_bytes(size: int) -> None:
    text = new_signing_secret(bytes(size)).reveal()

    assert text.startswith("whsec_")
    assert base64.b64decode(text.removeprefix("whsec_")) == bytes(size)


@pytest.mark.parametrize("size", [0, 23, 65])
def test_fewer_or_more_bytes_make_no_secret(size: int) -> None:
    with pytest.raises(InvalidValue) as refusal:
        new_signing_secret(bytes(size))
    assert refusal.value.field == "secret"


@pytest.mark.parametrize("size", [24, 32, 64])
def test_such_a_secret_is_recognised(size: int) -> None:
    assert is_signing_secret(new_signing_secret(bytes(size)))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "whsec_",
        "WHSEC_" + base64.b64encode(bytes(32)).decode(),
        base64.b64encode(bytes(32)).decode(),
        "whsec_" + base64.b64encode(bytes(23)).decode(),
        "whsec_" + base64.b64encode(bytes(65)).decode(),
        "whsec_" + base64.b64encode(bytes(32)).decode().rstrip("="),
        "whsec_" + base64.urlsafe_b64encode(b"\xff" * 32).decode(),
        "whsec_" + base64.b64encode(bytes(32)).decode() + "\n",
        "whsec_" + "é" * 32,
    ],
)
def test_anything_else_is_no_signing_secret(text: str) -> None:
    assert not is_signing_secret(Secret(text))


# Secrets stay secret


def test_a_secret_shows_only_when_asked_to() -> None:
    secret = Secret("s3cret")

    shown = [repr(secret), str(secret), f"{secret}", f"{secret!r:>20}", "%s" % secret, format(secret)]  # noqa: UP031

    assert not any("s3cret" in text for text in shown)
    assert secret.reveal() == "s3cret"


def test_whatever_holds_a_secret_does_not_show_it_either() -> None:
    destination = a_destination()
    (secret,) = destination.secrets
    hidden = secret.value.reveal()

    assert hidden not in repr(destination)
    assert hidden not in repr(secret)
    assert hidden not in str([secret.value])


def test_a_log_record_does_not_show_a_secret(caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("tests").warning("with %s and %r", Secret("s3cret"), Secret("s3cret"))

    assert "s3cret" not in caplog.text


@pytest.mark.parametrize("text", ["whsec_s3cret!", "s3cret", "whsec_s3crét", "whsec_s3cre\n"])
def test_a_secret_that_is_not_base64_is_refused_without_being_shown(text: str) -> None:
    with pytest.raises(InvalidValue) as refusal:
        signed(SigningSecret(value=Secret(text)))

    assert refusal.value.field == "secret"
    told = "".join(traceback.format_exception_only(refusal.value)) + repr(refusal.value)
    assert "s3cr" not in told
    assert refusal.value.__suppress_context__
    assert "s3cr" not in str(refusal.value.__context__)


def test_secrets_are_equal_when_their_texts_are() -> None:
    assert Secret("a") == Secret("a")
    assert Secret("a") != Secret("b")
    assert Secret("a") != "a"
    assert len({Secret("a"), Secret("a"), Secret("b")}) == 2


def test_a_secret_offers_no_other_attribute() -> None:
    assert not hasattr(Secret("s3cret"), "__dict__")
