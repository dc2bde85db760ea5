"""The way that a claim takes around all destinations, with a floor at those that are known."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from hymical.adapters.postgres.floors import FULL_LOOK_EVERY, UNSETTLED, Floors
from tests.clocks import START

NAMES = [f"dst_{letter}" for letter in "abcdefgh"]
LATER = START + timedelta(hours=1)


@dataclass(frozen=True, kw_only=True)
class Lane:
    locked: bool = True
    oldest: datetime | None = None
    now: datetime = LATER


@dataclass(frozen=True, kw_only=True)
class Taken:
    destination_id: str
    id: str
    came_due_at: datetime


def noted(*names: str, looked: float = 0.0) -> Floors:
    floors = Floors()
    for name in names:
        floors.note({name: Lane()}, [Taken(destination_id=name, id="dlv_1", came_due_at=START)], looked)
    return floors


def covers(stretch: Mapping[str, str | datetime | None], name: str) -> bool:
    return stretch["destination_id"] == name or str(stretch["behind"]) < name < str(stretch["before"])


def places(way: Sequence[Mapping[str, str | datetime | None]], name: str) -> list[int]:
    return [nth for nth, stretch in enumerate(way) if covers(stretch, name)]


@given(
    known=st.lists(st.sampled_from(NAMES), unique=True),
    after=st.sampled_from(["", *NAMES, "dst_bb"]),
    limit=st.integers(1, 10),
)
def test_every_destination_is_met_once_from_behind_the_last_to_itself(
    known: list[str], after: str, limit: int
) -> None:
    way = noted(*known).stretches(after, limit, 1.0)

    met = {name: places(way, name) for name in NAMES}
    assert all(len(found) == 1 for found in met.values())
    in_turn = sorted(NAMES, key=lambda name: (name <= after, name))
    assert [met[name] for name in in_turn] == sorted(met[name] for name in in_turn)
    # so that what a claim is given stays small
    assert len(way) <= limit + 3


def test_a_look_begins_behind_what_was_taken() -> None:
    (between, known) = noted("dst_c").stretches("", 10, 1.0)

    assert between["destination_id"] is None
    assert (known["due_at"], known["id"]) == (START, "dlv_1")


def test_it_begins_anew_after_two_seconds_also_where_the_last_claim_stopped() -> None:
    floors = noted("dst_c", looked=10.0)

    for after in ("", "dst_c"):
        way = floors.stretches(after, 10, 10.0 + FULL_LOOK_EVERY)
        assert {stretch["due_at"] for stretch in way} == {"-infinity"}
        assert {stretch["since"] for stretch in way} == {"-infinity"}


def test_what_is_in_flight_is_counted_from_the_oldest_lease_for_as_long_as_it_is_claimed_from() -> None:
    floors = noted("dst_c", looked=10.0)
    floors.note({"dst_c": Lane()}, [], 11.9)

    (_, known) = floors.stretches("", 10, 10.0 + FULL_LOOK_EVERY)
    assert (known["due_at"], known["since"]) == ("-infinity", LATER)


def test_what_is_taken_between_two_full_looks_does_not_put_off_the_next() -> None:
    floors = noted("dst_c", looked=10.0)
    floors.note({"dst_c": Lane()}, [], 11.9)

    assert all(stretch["due_at"] == "-infinity" for stretch in floors.stretches("", 10, 12.0))


def test_a_floor_is_never_so_near_that_a_transaction_under_way_could_end_behind_it() -> None:
    floors = Floors()
    floors.note({"dst_c": Lane()}, [Taken(destination_id="dst_c", id="dlv_1", came_due_at=LATER)], 0.0)

    known = floors.stretches("", 10, 1.0)[-1]
    assert (known["due_at"], known["id"]) == (LATER - UNSETTLED, "")


def test_in_flight_is_counted_from_the_oldest_lease() -> None:
    floors = Floors()
    floors.note({"dst_c": Lane(oldest=START)}, [], 0.0)
    assert floors.stretches("", 10, 1.0)[-1]["since"] == START

    floors.note({"dst_c": Lane()}, [], 1.0)
    assert floors.stretches("", 10, 1.0)[-1]["since"] == LATER


def test_one_that_another_claims_from_is_not_known() -> None:
    floors = Floors()
    floors.note({"dst_c": replace(Lane(), locked=False)}, [], 0.0)
    assert len(floors.stretches("", 10, 1.0)) == 1


def test_what_is_forgotten_or_one_of_too_many_is_looked_at_in_full() -> None:
    floors = noted("dst_c", "dst_d")
    floors.forget(["dst_c"])
    assert [stretch["destination_id"] for stretch in floors.stretches("", 10, 1.0)] == [None, "dst_d"]

    many = noted(*(f"dst_{n:04}" for n in range(300)))
    assert len(many.stretches("", 1_000, 1.0)) == 256 + 1
