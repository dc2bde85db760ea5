"""Keys to the management API."""

import hashlib

import pytest

from hymical.domain.errors import InvalidValue
from hymical.domain.ids import KeyId
from hymical.domain.keys import NewKey, is_key_text, key_digest, new_key_text
from hymical.domain.signing import Secret
from tests.builders import ids


def a_new_key(name: str) -> NewKey:
    return NewKey(id=KeyId("key_1"), name=name, digest=bytes(32))


def test_a_key_s_text_stands_for_32_random_bytes() -> None:
    assert new_key_text(bytes(32)).reveal() == "hym_live_" + "A" * 43
    assert new_key_text(b"\xff" * 32).reveal() == "hym_live_" + "_" * 42 + "8"


def test_a_new_key_is_a_key() -> None:
    assert is_key_text(new_key_text(ids.secret_bytes()).reveal())


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hym_live_",
        "hym_live_" + "A" * 42,
        "hym_live_" + "A" * 44,
        "hym_live_" + "A" * 43 + "\n",
        " hym_live_" + "A" * 43,
        "hym_test_" + "A" * 43,
        "HYM_LIVE_" + "A" * 43,
        "hym_live_" + "A" * 42 + "=",
        "hym_live_" + "A" * 42 + "é",
        "hym_live_" + "A" * 42 + "\ud800",
    ],
)
def test_nothing_else_is_a_key(text: str) -> None:
    assert not is_key_text(text)


def test_what_is_kept_of_a_key_is_its_sha_256() -> None:
    assert key_digest(Secret("hym_live_x")) == hashlib.sha256(b"hym_live_x").digest()


@pytest.mark.parametrize("name", ["C", "CI of Zoë", "x" * 200])
def test_a_key_s_name_is_1_to_200_printable_characters(name: str) -> None:
    assert a_new_key(name).name == name


@pytest.mark.parametrize("name", ["", "x" * 201, "a\nb", "a\0", "\ud800", "\u202eevil"])
def test_a_name_that_cannot_be_printed_is_refused(name: str) -> None:
    with pytest.raises(InvalidValue) as refusal:
        a_new_key(name)
    assert refusal.value.field == "name"
