"""When a delivery is tried again."""

from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hymical.domain.retries import LONGEST_RETRY_AFTER, RetryPolicy, parse_retry_after, spread

DAY = timedelta(hours=24)
WAITS = (timedelta(seconds=5), timedelta(minutes=5), timedelta(hours=2))
POLICY = RetryPolicy(waits=WAITS)
NO_JITTER = 0.5
DATE = "Sun, 29 Nov 2026 12:00:00 GMT"
dice = st.floats(min_value=0, max_value=1, exclude_max=True)


def test_there_is_one_attempt_more_than_there_are_waits() -> None:
    waits = [POLICY.wait_after(spent, NO_JITTER) for spent in range(1, 6)]

    assert waits == [*WAITS, None, None]


def test_without_waits_there_is_one_attempt() -> None:
    assert RetryPolicy(waits=()).wait_after(1, NO_JITTER, at_least=DAY) is None


@settings(derandomize=True, deadline=None, max_examples=30)
@given(dice=dice, seconds=st.integers(min_value=0, max_value=10**6))
def test_a_wait_is_spread_by_a_fifth_either_way(dice: float, seconds: int) -> None:
    assert timedelta(seconds=0.8 * seconds) <= spread(timedelta(seconds=seconds), dice)
    assert spread(timedelta(seconds=seconds), dice) <= timedelta(seconds=1.2 * seconds)


def test_the_dice_decide_where_in_the_spread() -> None:
    minute = timedelta(minutes=1)

    assert [spread(minute, dice).total_seconds() for dice in (0.0, 0.25, 0.5, 0.75)] == [48, 54, 60, 66]


@settings(derandomize=True, deadline=None, max_examples=30)
@given(dice=dice, asked=st.timedeltas(min_value=timedelta(0), max_value=timedelta(days=3)))
def test_what_the_receiver_asked_for_is_never_undercut_up_to_24_hours(dice: float, asked: timedelta) -> None:
    wait = POLICY.wait_after(2, dice, at_least=asked)

    assert wait is not None
    assert wait >= min(asked, DAY)
    assert wait == max(min(asked, DAY), spread(WAITS[1], dice))


def test_asking_for_longer_than_24_hours_gets_24_hours() -> None:
    assert POLICY.wait_after(1, NO_JITTER, at_least=DAY * 30) == DAY == LONGEST_RETRY_AFTER


def test_the_wait_of_the_schedule_is_not_cut_to_24_hours() -> None:
    assert RetryPolicy(waits=(DAY * 3,)).wait_after(1, NO_JITTER, at_least=DAY * 2) == DAY * 3


def test_asking_for_a_wait_gives_no_further_attempt() -> None:
    assert POLICY.wait_after(4, NO_JITTER, at_least=timedelta(seconds=1)) is None


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, 0),
        ("", 0),
        ("0", 0),
        ("1", 1),
        (" 120\t", 120),
        ("000000000000000120", 120),
        ("86399", 86_399),
        ("86400", 86_400),
        ("86401", 86_400),
        ("9" * 5_000, 86_400),
        ("1" + "0" * 400, 86_400),
        ("-1", 0),
        ("+1", 0),
        ("1.5", 0),
        ("1e3", 0),
        ("0x10", 0),
        ("1_000", 0),
        ("1, 2", 0),
        ("٣", 0),
        ("²", 0),
        ("soon", 0),
        ("\0", 0),
    ],
)
def test_a_number_of_seconds_is_read_and_anything_else_asks_for_nothing(
    value: str | None, seconds: int
) -> None:
    assert parse_retry_after(value, None) == timedelta(seconds=seconds)
    assert parse_retry_after(value, DATE) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("Sun, 29 Nov 2026 12:01:30 GMT", 90),
        ("Sunday, 29-Nov-26 12:01:30 GMT", 90),
        ("Sun Nov 29 12:01:30 2026", 90),
        ("Sun, 29 Nov 2026 13:01:30 +0100", 90),
        (DATE, 0),
        ("Sun, 29 Nov 2026 11:59:59 GMT", 0),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 0),
        ("Mon, 30 Nov 2026 12:00:01 GMT", 86_400),
        ("Fri, 31 Dec 9999 23:59:59 GMT", 86_400),
        ("Sun, 99 Nov 2026 12:01:30 GMT", 0),
        ("Sun, 29 Nov 2026 25:61:61 GMT", 0),
        ("Sun, 29 Nov 99999999999999999999 12:01:30 GMT", 0),
        ("Sun, 29 Nov 2026 12:01:30 +9999999", 0),
    ],
)
def test_a_date_counts_from_the_response_s_own_date(value: str, seconds: int) -> None:
    assert parse_retry_after(value, DATE) == timedelta(seconds=seconds)


def test_the_receiver_s_clock_may_be_wrong() -> None:
    value, date = "Thu, 01 Jan 1970 00:02:00 GMT", "Thu, 01 Jan 1970 00:00:00 GMT"

    assert parse_retry_after(value, date) == timedelta(minutes=2)


@pytest.mark.parametrize("date", [None, "", "today", "1795953600"])
def test_a_date_without_a_readable_date_of_the_response_asks_for_nothing(date: str | None) -> None:
    assert parse_retry_after("Sun, 29 Nov 2026 12:01:30 GMT", date) == timedelta(0)


_number = st.integers(min_value=-(10**6), max_value=10**12).map(str)
_dates = st.builds(
    "{}{} {} {} {}:{}:{} {}".format,
    st.sampled_from(["", "Sun, ", "Sunday, ", ", "]),
    _number,
    st.sampled_from(["Nov", "November", "11", "-", ""]),
    _number,
    _number,
    _number,
    _number,
    st.one_of(st.sampled_from(["GMT", "+0000", "-2400", "+9999", "", "-", "EST"]), _number),
)


@settings(derandomize=True, deadline=None, max_examples=60)
@given(value=st.one_of(st.text(max_size=30), _dates), date=st.one_of(st.just(DATE), _dates))
def test_nothing_that_a_receiver_sends_breaks_the_reading(value: str, date: str) -> None:
    assert timedelta(0) <= parse_retry_after(value, date) <= DAY


def test_what_failed_in_the_same_second_does_not_return_together() -> None:
    policy = RetryPolicy(waits=(timedelta(minutes=5),))
    waits = sorted(policy.wait_after(1, number / 1_000) or timedelta(0) for number in range(1_000))

    assert waits[0] == timedelta(minutes=4)
    assert waits[-1] - waits[0] >= timedelta(minutes=5) * 0.2
    in_one_second = max(
        sum(wait <= other < wait + timedelta(seconds=1) for other in waits) for wait in waits[::25]
    )
    assert in_one_second <= 10
