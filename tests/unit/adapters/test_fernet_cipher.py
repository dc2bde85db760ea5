"""Secrets at rest, sealed with keys that are changed over one by one."""

import base64
import traceback

import pytest

from hymical.adapters.fernet.cipher import FernetCipher
from hymical.domain.errors import SecretUnreadable
from hymical.domain.signing import Secret

OLD, NEW, OTHER = (Secret(base64.urlsafe_b64encode(bytes([number]) * 32).decode()) for number in (1, 2, 3))
SECRET = Secret("whsec_s3cret Zoë 😀")


def test_what_is_sealed_is_opened_again() -> None:
    sealed = FernetCipher([NEW]).seal(SECRET)

    assert sealed.startswith("fernet:")
    assert "s3cret" not in sealed
    assert FernetCipher([NEW]).open(sealed) == SECRET


def test_the_same_secret_is_never_sealed_alike() -> None:
    cipher = FernetCipher([NEW])

    assert cipher.seal(SECRET) != cipher.seal(SECRET)


def test_the_newest_key_seals_and_all_of_them_open() -> None:
    sealed_before, rotated = FernetCipher([OLD]).seal(SECRET), FernetCipher([NEW, OLD])

    assert rotated.open(sealed_before) == SECRET
    assert FernetCipher([NEW]).open(rotated.seal(SECRET)) == SECRET
    with pytest.raises(SecretUnreadable):
        FernetCipher([OLD]).open(rotated.seal(SECRET))


@pytest.mark.parametrize("keys", [[], [OTHER], [OTHER, OLD]])
def test_a_key_that_is_not_at_hand_opens_nothing(keys: list[Secret]) -> None:
    sealed = FernetCipher([NEW]).seal(SECRET)

    with pytest.raises(SecretUnreadable):
        FernetCipher(keys).open(sealed)


@pytest.mark.parametrize("spoilt", ["", "fernet:", "fernet:é", "s3cret", "other:s3cret"])
def test_what_was_never_sealed_cannot_be_opened(spoilt: str) -> None:
    with pytest.raises(SecretUnreadable):
        FernetCipher([NEW]).open(spoilt)


def test_a_sealed_secret_that_was_tampered_with_cannot_be_opened() -> None:
    sealed = FernetCipher([NEW]).seal(SECRET)

    with pytest.raises(SecretUnreadable):
        FernetCipher([NEW]).open(sealed[:-8] + "AAAAAAA=")


def test_without_keys_secrets_are_kept_as_they_are() -> None:
    assert FernetCipher([]).seal(SECRET) == "plain:" + SECRET.reveal()
    assert FernetCipher([]).open("plain:" + SECRET.reveal()) == SECRET


def test_what_was_kept_plain_is_still_opened_once_there_are_keys() -> None:
    assert FernetCipher([NEW]).open(FernetCipher([]).seal(SECRET)) == SECRET


@pytest.mark.parametrize("key", ["", "short", "é" * 43 + "=", base64.urlsafe_b64encode(bytes(31)).decode()])
def test_a_key_of_another_size_is_none(key: str) -> None:
    with pytest.raises(ValueError, match=r"32|ASCII"):
        FernetCipher([Secret(key)])


def test_neither_keys_nor_secrets_show() -> None:
    cipher = FernetCipher([NEW])
    sealed = FernetCipher([OTHER]).seal(SECRET)
    opened = cipher.open(cipher.seal(SECRET))

    with pytest.raises(SecretUnreadable) as refusal:
        cipher.open(sealed)

    told = "".join(traceback.format_exception(refusal.value)) + repr(refusal.value) + repr(opened)
    assert not any(
        hidden in told + repr(cipher) + str(vars(cipher))
        for hidden in (NEW.reveal(), OTHER.reveal(), "s3cret", sealed)
    )
    assert refusal.value.__suppress_context__
