"""Ticks: where the clocks change, at the ends of months, and what is caught up with."""

from collections.abc import Sequence
from datetime import UTC, date, datetime, time, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hymical.adapters.cronsim.calendar import CronSimCalendar
from hymical.domain.errors import InvalidValue
from hymical.domain.schedules import (
    MAX_BOUND,
    PUNCTUAL_WITHIN,
    CatchUp,
    Cron,
    Due,
    FixedTimes,
    Rule,
    Schedule,
    Timetable,
)

BERLIN, NEW_YORK, LORD_HOWE = "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"
MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
NOON = datetime(2026, 11, 29, 12, tzinfo=UTC)

# the days on which the clocks go forward and back
SPRING = {BERLIN: date(2026, 3, 29), NEW_YORK: date(2026, 3, 8), LORD_HOWE: date(2026, 10, 4)}
AUTUMN = {BERLIN: date(2026, 10, 25), NEW_YORK: date(2026, 11, 1), LORD_HOWE: date(2026, 4, 5)}
ZONES = (BERLIN, NEW_YORK, LORD_HOWE, "America/Havana", "Asia/Kolkata", "Pacific/Chatham", "UTC")
EXPRESSIONS = (
    "* * * * *",
    "*/15 * * * *",
    "0 * * * *",
    "30 * * * *",
    "*/7 2,3 * * *",
    "30 2 * * *",
    "0,15,45 1-3 * * *",
    "0 0 * * *",
    "0 7 * * MON-FRI",
    "0 12 L * *",
    "59 23 31 * *",
    "0 0 29 2 *",
)


def timetable(
    rule: str | Rule, zone: str = "UTC", *, catch_up: CatchUp = CatchUp.ONCE, bound: int = 3
) -> Timetable:
    given = Cron(expression=rule) if isinstance(rule, str) else rule
    return Timetable(
        schedule=Schedule(name="x", job_type="x", rule=given, zone=zone, catch_up=catch_up, bound=bound),
        walls=CronSimCalendar().walls(given.expression) if isinstance(given, Cron) else given.walls,
        zone=ZoneInfo(zone),
    )


def moments(*, days: int) -> st.SearchStrategy[datetime]:
    return st.integers(0, days * 24 * 3_600).map(
        lambda seconds: datetime(2025, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
    )


def of_day(rule: str | Rule, zone: str, day: date) -> Sequence[str]:
    """The ticks of a local day, as the clock on the wall shows them with its offset."""
    start = datetime.combine(day, time(), tzinfo=ZoneInfo(zone)).astimezone(UTC)
    end = datetime.combine(day + DAY, time(), tzinfo=ZoneInfo(zone)).astimezone(UTC)
    ticks = timetable(rule, zone).within(start - timedelta(microseconds=1), end - timedelta(microseconds=1))
    return [f"{tick.astimezone(ZoneInfo(zone)):%H:%M%z}" for tick in ticks]


@pytest.mark.parametrize(
    ("zone", "shown"), [(BERLIN, "03:00+0200"), (NEW_YORK, "03:00-0400"), (LORD_HOWE, "02:30+1100")]
)
@pytest.mark.parametrize("rule", ["15 2 * * *", FixedTimes(times=(time(2, 15),))])
def test_a_time_that_does_not_exist_is_due_at_the_first_instant_behind_the_gap(
    rule: str | Rule, zone: str, shown: str
) -> None:
    assert of_day(rule, zone, SPRING[zone]) == [shown]


@pytest.mark.parametrize(
    ("zone", "named", "shown"),
    [(BERLIN, 2, "02:45+0200"), (NEW_YORK, 1, "01:45-0400"), (LORD_HOWE, 1, "01:45+1100")],
)
def test_a_time_that_exists_twice_is_due_the_first_time(zone: str, named: int, shown: str) -> None:
    assert of_day(f"45 {named} * * *", zone, AUTUMN[zone]) == [shown]
    assert of_day(FixedTimes(times=(time(named, 45),)), zone, AUTUMN[zone]) == [shown]


def test_times_that_fall_into_one_gap_are_due_once() -> None:
    assert of_day("0,15,30 2 * * *", BERLIN, SPRING[BERLIN]) == ["03:00+0200"]


@pytest.mark.parametrize(("zone", "hours"), [(BERLIN, 23), (NEW_YORK, 23), ("UTC", 24)])
def test_an_hourly_rule_runs_each_real_hour_of_a_short_day(zone: str, hours: int) -> None:
    assert len(of_day("0 * * * *", zone, SPRING.get(zone, date(2026, 3, 29)))) == hours


@pytest.mark.parametrize("zone", [BERLIN, NEW_YORK])
def test_an_hourly_rule_runs_each_real_hour_of_a_long_day(zone: str) -> None:
    ticks = of_day("0 * * * *", zone, AUTUMN[zone])

    assert len(ticks) == len(set(ticks)) == 25


def test_where_clocks_change_by_half_an_hour_an_hourly_rule_keeps_to_the_full_hour_on_the_wall() -> None:
    forward, back = (of_day("0 * * * *", LORD_HOWE, days[LORD_HOWE]) for days in (SPRING, AUTUMN))

    assert forward[:4] == ["00:00+1030", "01:00+1030", "03:00+1100", "04:00+1100"]
    assert back[:4] == ["00:00+1100", "01:00+1100", "02:00+1030", "03:00+1030"]


def test_a_rule_with_a_star_leaves_out_minutes_that_do_not_exist_and_runs_in_those_that_exist_twice() -> None:
    assert of_day("*/30 2 * * *", BERLIN, SPRING[BERLIN]) == []
    assert of_day("*/30 2 * * *", BERLIN, AUTUMN[BERLIN]) == [
        "02:00+0200",
        "02:30+0200",
        "02:00+0100",
        "02:30+0100",
    ]


def test_the_hour_behind_a_change_by_half_an_hour_is_whole() -> None:
    assert len(of_day("* 3 * * *", LORD_HOWE, AUTUMN[LORD_HOWE])) == 60


def test_a_midnight_that_does_not_exist_is_due_when_the_day_begins() -> None:
    assert of_day("0 0 * * *", "America/Havana", date(2026, 3, 8)) == ["01:00-0400"]


@pytest.mark.parametrize("zone", ZONES)
@given(start=moments(days=365))
@settings(max_examples=10, deadline=None)
def test_a_rule_for_every_minute_is_due_in_every_real_minute(zone: str, start: datetime) -> None:
    ticks = list(timetable("* * * * *", zone).within(start, start + 3 * HOUR))

    assert len(ticks) == 180
    assert {later - earlier for earlier, later in pairwise(ticks)} == {MINUTE}


@pytest.mark.parametrize("change", [*SPRING.items(), *AUTUMN.items()])
@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_ticks_are_the_same_wherever_one_begins_to_count(change: tuple[str, date], expression: str) -> None:
    zone, day = change
    start = datetime.combine(day, time(), tzinfo=UTC) - DAY
    at_all = timetable(expression, zone)
    ticks = list(at_all.within(start, start + 2 * DAY))

    assert ticks == sorted(set(ticks))
    for minutes in range(0, 2 * 24 * 60, 37):
        after = start + minutes * MINUTE
        assert at_all.next(after) == next((one for one in ticks if one > after), at_all.next(start + 2 * DAY))


@given(
    expression=st.sampled_from(EXPRESSIONS),
    zone=st.sampled_from(ZONES),
    start=moments(days=5 * 365),
)
@settings(max_examples=100, deadline=None)
def test_the_next_tick_lies_ahead_and_is_a_time_that_the_rule_names(
    expression: str, zone: str, start: datetime
) -> None:
    at_all = timetable(expression, zone)
    tick = at_all.next(start)

    assert tick is not None
    assert tick > start
    assert at_all.next(tick - timedelta(microseconds=1)) == tick
    wall = tick.astimezone(ZoneInfo(zone)).replace(tzinfo=None, fold=0)
    moved = at_all.walls(wall - MINUTE) != wall
    # only where the clocks went forward
    assert not moved or (tick - DAY).astimezone(ZoneInfo(zone)).utcoffset() != (
        tick.astimezone(ZoneInfo(zone)).utcoffset()
    )


def test_the_last_day_of_each_month_is_found() -> None:
    ticks = timetable("0 12 L * *", BERLIN).within(
        datetime(2028, 1, 1, tzinfo=UTC), datetime(2028, 12, 31, 23, tzinfo=UTC)
    )

    assert [tick.day for tick in ticks] == [31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]


def test_a_rule_for_the_31st_leaves_out_short_months() -> None:
    ticks = timetable("0 0 31 * *").within(
        datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 12, 31, 23, tzinfo=UTC)
    )

    assert [tick.month for tick in ticks] == [1, 3, 5, 7, 8, 10, 12]


def test_a_leap_day_comes_every_four_years() -> None:
    ticks = timetable("0 12 29 2 *", BERLIN).within(NOON, NOON + 4_000 * DAY)

    assert [tick.year for tick in ticks] == [2028, 2032, 2036]


def test_fixed_times_are_due_every_day_in_their_order() -> None:
    rule = FixedTimes(times=(time(19, 30), time(7), time(12, 0, 5)))

    assert of_day(rule, NEW_YORK, date(2026, 7, 1)) == ["07:00-0400", "12:00-0400", "19:30-0400"]
    assert str(rule) == "daily at 07:00, 12:00:05, 19:30"


def test_a_fixed_time_needs_to_be_one_without_a_zone() -> None:
    for times in ((), (time(7, tzinfo=UTC),)):
        with pytest.raises(InvalidValue, match="times"):
            FixedTimes(times=times)


@pytest.mark.parametrize("bound", [0, MAX_BOUND + 1])
def test_a_bound_that_no_pass_could_keep_is_refused(bound: int) -> None:
    with pytest.raises(InvalidValue, match="bound"):
        Schedule(name="x", job_type="x", rule=Cron(expression="* * * * *"), bound=bound)


@pytest.mark.parametrize("name", ["", "Nightly", "a b", "a/b", "n" * 64])
def test_a_name_that_no_address_could_hold_is_refused(name: str) -> None:
    with pytest.raises(InvalidValue, match="name"):
        Schedule(name=name, job_type="x", rule=Cron(expression="* * * * *"))


@pytest.mark.parametrize("payload", [{"at": NOON}, {"rate": float("nan")}, {1: "one"}])
def test_a_payload_that_could_not_be_stored_is_refused(payload: dict[str, object]) -> None:
    with pytest.raises(InvalidValue, match="payload"):
        Schedule(name="x", job_type="x", rule=Cron(expression="* * * * *"), payload=payload)


@pytest.mark.parametrize("catch_up", CatchUp)
def test_a_tick_on_time_is_run_whatever_the_rule_for_missed_ones(catch_up: CatchUp) -> None:
    due = timetable("0 * * * *", catch_up=catch_up).due(NOON - MINUTE, NOON + PUNCTUAL_WITHIN)

    assert due == Due(ticks=(NOON,), through=NOON)


def test_nothing_is_due_before_the_next_tick_and_after_it_was_run() -> None:
    hourly = timetable("0 * * * *")

    assert hourly.due(NOON - HOUR, NOON - timedelta(microseconds=1)) is None
    assert hourly.due(NOON, NOON + HOUR - timedelta(microseconds=1)) is None
    assert hourly.due(NOON, NOON + HOUR) == Due(ticks=(NOON + HOUR,), through=NOON + HOUR)


def test_skip_leaves_what_was_missed_and_says_how_far_it_got() -> None:
    due = timetable("0 * * * *", catch_up=CatchUp.SKIP).due(NOON - 5 * HOUR, NOON + 2 * MINUTE)

    assert due == Due(ticks=(), through=NOON)


def test_once_runs_the_newest_for_all_that_were_missed() -> None:
    due = timetable("0 * * * *", catch_up=CatchUp.ONCE).due(NOON - 5 * HOUR, NOON + 2 * MINUTE)

    assert due == Due(ticks=(NOON,), through=NOON)


def test_all_runs_the_newest_within_its_bound() -> None:
    hourly = timetable("0 * * * *", catch_up=CatchUp.ALL, bound=3)

    assert hourly.due(NOON - 2 * HOUR, NOON) == Due(ticks=(NOON - HOUR, NOON), through=NOON)
    assert hourly.due(NOON - 9 * HOUR, NOON) == Due(ticks=(NOON - 2 * HOUR, NOON - HOUR, NOON), through=NOON)


@given(
    expression=st.sampled_from(EXPRESSIONS),
    zone=st.sampled_from(ZONES),
    away=st.timedeltas(timedelta(0), timedelta(days=40)),
    bound=st.integers(1, 20),
)
@settings(max_examples=40, deadline=None)
def test_the_newest_ticks_are_found_however_far_back_one_looks(
    expression: str, zone: str, away: timedelta, bound: int
) -> None:
    at_all = timetable(expression, zone, catch_up=CatchUp.ALL, bound=bound)
    since = NOON - min(away, DAY) if expression.startswith("*") else NOON - away

    due = at_all.due(since, NOON)

    assert (due.ticks if due else ()) == tuple(at_all.within(since, NOON))[-bound:]


def test_a_schedule_is_overdue_a_minute_behind_its_tick() -> None:
    hourly = timetable("0 * * * *")

    assert hourly.overdue_since(NOON - MINUTE, NOON + PUNCTUAL_WITHIN) is None
    late = NOON + PUNCTUAL_WITHIN + timedelta(microseconds=1)
    assert hourly.overdue_since(NOON - MINUTE, late) == NOON
    assert hourly.overdue_since(NOON - HOUR, NOON + 3 * HOUR) == NOON
