"""The pure part of rate limits: never more than the limit, in any window, and waits that are true."""

from dataclasses import replace
from datetime import timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from hymical.domain.limits import RateLimit, spend, standing
from tests.clocks import START

SECOND = timedelta(seconds=1)
TICK = timedelta(microseconds=1)
SIXTY = RateLimit(requests=60, window=timedelta(seconds=60))

limits = st.builds(
    RateLimit,
    requests=st.integers(1, 50),
    window=st.timedeltas(min_value=timedelta(microseconds=1), max_value=timedelta(hours=2)),
)
steps = st.lists(
    st.tuples(st.timedeltas(min_value=timedelta(0), max_value=timedelta(hours=1)), st.integers(1, 60)),
    min_size=1,
    max_size=10,
)


def test_a_fresh_bucket_allows_its_requests_at_once_and_not_one_more() -> None:
    allowed, tat = spend(None, START, SIXTY, 61)

    assert (allowed, tat) == (60, START + timedelta(seconds=60))
    assert spend(tat, START, SIXTY, 1) == (0, tat)


def test_after_a_burst_one_is_allowed_for_each_share_of_the_window() -> None:
    _, tat = spend(None, START, SIXTY, 60)

    assert spend(tat, START + SECOND - TICK, SIXTY, 5)[0] == 0
    assert spend(tat, START + SECOND, SIXTY, 5)[0] == 1
    assert spend(tat, START + 10 * SECOND, SIXTY, 50)[0] == 10


def test_a_window_has_no_edge_at_which_the_limit_counts_twice() -> None:
    # a counter per minute allows all of both minutes around the edge
    _, tat = spend(None, START + 59 * SECOND, SIXTY, 60)

    assert spend(tat, START + 61 * SECOND, SIXTY, 60)[0] == 2


def test_a_bucket_that_was_left_alone_is_full_and_not_fuller() -> None:
    _, tat = spend(None, START, SIXTY, 60)

    assert spend(tat, START + timedelta(days=1), SIXTY, 100)[0] == 60


def test_a_clock_that_steps_back_gives_nothing_away() -> None:
    _, tat = spend(None, START, SIXTY, 60)

    assert spend(tat, START - SECOND, SIXTY, 1) == (0, tat)


@settings(deadline=None)
@given(limits, steps)
def test_no_stretch_of_time_sees_more_than_a_burst_and_its_share(
    limit: RateLimit, steps: list[tuple[timedelta, int]]
) -> None:
    now, tat, granted = START, None, []
    for step, asked in steps:
        now += step
        allowed, tat = spend(tat, now, limit, asked)
        assert 0 <= allowed <= asked
        granted.append((now, allowed))

    for begin, (first, _) in enumerate(granted):
        total = 0
        for last, allowed in granted[begin:]:
            total += allowed
            # total <= requests + elapsed * requests / window, without rounding
            assert (total - limit.requests) * limit.window <= (last - first) * limit.requests


@settings(deadline=None)
@given(limits, steps)
def test_a_refused_request_changes_nothing(limit: RateLimit, steps: list[tuple[timedelta, int]]) -> None:
    now, tat = START, None
    for step, asked in steps:
        now += step
        allowed, spent_until = spend(tat, now, limit, asked)
        if allowed < asked:
            assert spend(spent_until, now, limit, asked) == (0, spent_until)
        tat = spent_until


@settings(deadline=None)
@given(limits, steps)
def test_a_wait_that_is_told_is_true(limit: RateLimit, steps: list[tuple[timedelta, int]]) -> None:
    now, tat = START, None
    for step, asked in steps:
        now += step
        allowed, tat = spend(tat, now, limit, asked)
        told = standing(tat, now, limit, allowed=allowed == asked)
        assert spend(tat, now, limit, told.remaining + 1)[0] == told.remaining
        assert spend(tat, now + told.reset, limit, limit.requests)[0] == limit.requests
        if told.allowed:
            assert told.retry_after == timedelta(0)
            continue
        assert told.remaining == 0
        assert told.retry_after >= SECOND
        assert told.retry_after % SECOND == timedelta(0)
        # asking meanwhile, in vain, does not put it off
        _, still = spend(tat, now, limit, 1)
        assert spend(still, now + told.retry_after, limit, 1)[0] == 1
        if told.retry_after > SECOND:
            assert spend(tat, now + told.retry_after - SECOND, limit, 1)[0] == 0


@settings(deadline=None)
@given(limits, steps)
def test_together_or_one_by_one_is_the_same(limit: RateLimit, steps: list[tuple[timedelta, int]]) -> None:
    now, together, alone = START, None, None
    for step, asked in steps:
        now += step
        allowed, together = spend(together, now, limit, asked)
        one_by_one = []
        for _ in range(asked):
            one, alone = spend(alone, now, limit, 1)
            one_by_one.append(one)
        assert one_by_one == [1] * allowed + [0] * (asked - allowed)
        assert alone == together


def test_a_limit_that_does_not_divide_its_window_still_allows_its_burst() -> None:
    seven = replace(SIXTY, requests=7)

    assert spend(None, START, seven, 10)[0] == 7
