"""Keys to the management API."""

import hashlib
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hymical.domain.errors import InvalidValue
from hymical.domain.ids import KeyId
from hymical.domain.keys import (
    WARNED_BEFORE,
    Key,
    NewKey,
    expiry_warning,
    is_key_text,
    key_digest,
    new_key_text,
    opens,
)
from hymical.domain.signing import Secret
from tests.builders import ids
from tests.clocks import START


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


DAY = timedelta(days=1)
hours = st.integers(min_value=0, max_value=24 * 40)


def a_key(lives: timedelta | None, *, revoked: bool = False) -> Key:
    return Key(
        id=KeyId("key_1"),
        name="CI",
        created_at=START,
        expires_at=None if lives is None else START + lives,
        revoked_at=START if revoked else None,
    )


def test_a_key_opens_until_the_instant_at_which_it_expires() -> None:
    key = a_key(DAY)

    assert opens(key, START + DAY - timedelta(microseconds=1))
    assert not opens(key, START + DAY)
    assert opens(a_key(None), START + 10_000 * DAY)
    assert not opens(a_key(None, revoked=True), START)


def test_each_day_of_warning_is_told_once_when_somebody_looks_daily() -> None:
    key, warned, told = a_key(30 * DAY), None, {}
    for day in range(40):
        due = expiry_warning(key, warned, START + day * DAY)
        if due is not None:
            told[30 - day] = warned = due

    assert told == {14: 14, 7: 7, 3: 3, 1: 1}


def test_a_warning_that_nobody_looked_for_is_told_later_even_of_a_key_that_has_expired() -> None:
    key = a_key(30 * DAY)

    assert expiry_warning(key, 14, START + 28 * DAY) == 3
    assert expiry_warning(key, 3, START + 33 * DAY) == 1
    assert expiry_warning(key, 1, START + 33 * DAY) is None


def test_a_key_that_lives_for_a_week_is_not_warned_of_as_soon_as_it_is_made() -> None:
    key = a_key(7 * DAY)

    assert expiry_warning(key, None, START) is None
    assert expiry_warning(key, None, START + 4 * DAY) == 3
    assert expiry_warning(a_key(timedelta(hours=12)), None, START + 40 * DAY) is None


def test_neither_a_revoked_key_nor_one_without_an_end_is_warned_of() -> None:
    assert expiry_warning(a_key(30 * DAY, revoked=True), None, START + 29 * DAY) is None
    assert expiry_warning(a_key(None), None, START + 29 * DAY) is None


@settings(derandomize=True, deadline=None, max_examples=100)
@given(lives=hours.filter(bool), looks=st.lists(hours, max_size=12).map(sorted))
def test_no_day_is_told_twice_and_after_a_look_none_that_has_passed_is_left(
    lives: int, looks: list[int]
) -> None:
    key, warned, told = a_key(timedelta(hours=lives)), None, list[int]()
    for look in looks:
        now = START + timedelta(hours=look)
        due = expiry_warning(key, warned, now)
        if due is not None:
            told.append(due)
            warned = due
        passed = [days for days in WARNED_BEFORE if 0 < lives - 24 * days <= look]
        assert warned == min(passed, default=None)

    assert told == sorted(set(told), reverse=True)
