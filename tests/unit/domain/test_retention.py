"""In what steps history is removed."""

from datetime import timedelta

import pytest

from hymical.domain.retention import CleanUpState, Kind, RetentionPolicy, next_looks

DAY = timedelta(days=1)


def test_every_kind_has_its_turn_and_what_was_removed_is_counted() -> None:
    state = CleanUpState()
    seen: list[Kind] = []
    while state.kind is not None:
        seen.append(state.kind)
        state = state.swept(2, "a").swept(1, None)
    assert seen == list(Kind)
    assert state.removed == dict.fromkeys(Kind, 3)
    assert state.over() == state


def test_a_batch_that_goes_on_stays_with_its_kind() -> None:
    state = CleanUpState().swept(5, "job_9")
    assert (state.kind, state.behind) == (Kind.EXPORTS, "job_9")
    assert state.swept(0, None).behind == ""


def test_submissions_and_history_are_kept_as_long_as_each_is_set() -> None:
    policy = RetentionPolicy(submissions=None, history=90 * DAY)
    ages = {kind: policy.age(kind) for kind in Kind}
    assert ages == {
        Kind.EXPORTS: timedelta(0),
        Kind.SUBMISSIONS: None,
        Kind.DELIVERIES: 90 * DAY,
        Kind.JOBS: 90 * DAY,
        Kind.RATE_LIMITS: timedelta(0),
    }


@pytest.mark.parametrize(
    ("looks", "seconds", "then"),
    [(200, 0.01, 400), (200, 0.3, 200), (200, 2.0, 100), (12, 2.0, 10), (10, 9.0, 10), (900, 0.01, 1_000)],
)
def test_batches_shrink_when_they_are_slow_and_grow_when_they_are_quick(
    looks: int, seconds: float, then: int
) -> None:
    assert next_looks(looks, seconds) == then
