"""Ids, dice and the machine's clock."""

import re
import time
from datetime import UTC, timedelta

import pytest

from hymical.adapters.system.clock import SystemClock
from hymical.adapters.system.ids import SystemIds

NOON = 1_795_953_600_000_000_000
MILLISECOND = 1_000_000
LAYOUT = re.compile(r"[0-7][0-9a-hjkmnp-tv-z]{25}", re.ASCII)
ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"


def milliseconds(id: str) -> int:
    text = id.partition("_")[2]
    number = 0
    for char in text:
        number = number * 32 + ALPHABET.index(char)
    return number >> 80


def test_each_kind_has_its_prefix_in_front_of_a_ulid() -> None:
    ids = SystemIds()

    made = [ids.submission(), ids.message(), ids.destination(), ids.delivery(), ids.key()]

    assert [one[:4] for one in made] == ["sub_", "evt_", "dst_", "dlv_", "key_"]
    assert all(LAYOUT.fullmatch(one[4:]) for one in made)


def test_an_id_begins_with_the_time_it_was_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: NOON + 999_999)

    assert milliseconds(SystemIds().submission()) == NOON // MILLISECOND


def test_ids_of_one_millisecond_sort_as_they_were_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: NOON)
    ids = SystemIds()

    made = [ids.delivery() for _ in range(2_000)]

    assert made == sorted(set(made))
    assert len(made) == len(set(made))
    # they are not counted up by one either: the next cannot be guessed
    assert len({one[-4:] for one in made}) > 1_000


def test_ids_go_on_sorting_when_the_clock_steps_back(monkeypatch: pytest.MonkeyPatch) -> None:
    ids = SystemIds()
    made = []
    for step in (0, 5, -3_600_000, -3_599_999, 6):
        now = NOON + step * MILLISECOND
        monkeypatch.setattr(time, "time_ns", lambda now=now: now)
        made += [ids.message(), ids.message()]

    assert made == sorted(set(made))
    assert len(made) == len(set(made))


def test_two_processes_do_not_make_the_same_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: NOON)
    one, two = SystemIds(), SystemIds()

    assert not {one.key() for _ in range(100)} & {two.key() for _ in range(100)}


def test_secret_bytes_are_32_and_never_the_same() -> None:
    ids = SystemIds()

    drawn = {ids.secret_bytes() for _ in range(10)}

    assert len(drawn) == 10
    assert {len(one) for one in drawn} == {32}


def test_dice_fall_between_0_and_1() -> None:
    ids = SystemIds()

    thrown = [ids.dice() for _ in range(100)]

    assert all(0 <= one < 1 for one in thrown)
    assert len(set(thrown)) > 1


def test_the_machine_s_clock_is_aware_and_leaves_what_is_due_to_the_database() -> None:
    clock = SystemClock()

    assert clock.now().tzinfo is UTC
    assert clock.now().utcoffset() == timedelta(0)
    assert clock.pinned() is None
    before = clock.monotonic()
    assert clock.monotonic() >= before
