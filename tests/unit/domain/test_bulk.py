"""When a person is asked before much is sent, how fast it goes, and where it goes on."""

import json
from datetime import timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from hymical.domain.bulk import (
    BATCH,
    COUNTED_AT_MOST,
    MOST_WAITING,
    SETTLED_AFTER,
    Extent,
    Step,
    Tally,
    consent,
    declined,
    must_ask,
    must_count,
    start,
    wait_for_room,
    wait_until_settled,
)
from hymical.domain.jobs import Answer
from tests.clocks import START

counts = st.integers(min_value=0, max_value=5_000)
reasons = st.dictionaries(st.sampled_from(["destination_disabled", "submission_deleted"]), counts)
steps = st.builds(Step, last=st.text("abc", max_size=3), sent=counts, skipped=reasons, more=st.booleans())
YES = Answer(text="yes", by="key_1", at=START)
NO = Answer(text="no", by="key_1", at=START)


def batches(there: int, ask_above: int, answer: Answer | None) -> tuple[int, bool]:
    """How many of those that are there a job sends before it asks or ends, and whether it asks."""
    tally = Tally(before=START)
    while True:
        left = there - tally.sent
        if must_count(tally, answer, ask_above=ask_above) and must_ask(
            tally, Extent(deliveries=left, destinations=1), ask_above=ask_above
        ):
            return tally.sent, True
        sent = min(left, BATCH)
        tally = tally.plus(Step(last="x", sent=sent, skipped={}, more=sent == BATCH))
        if sent < BATCH:
            return tally.sent, False


@settings(derandomize=True, deadline=None, max_examples=200)
@given(there=counts, ask_above=counts)
def test_nothing_is_sent_before_a_person_was_asked_about_more_than_the_threshold(
    there: int, ask_above: int
) -> None:
    assert batches(there, ask_above, None) == ((0, True) if there > ask_above else (there, False))


@settings(derandomize=True, deadline=None, max_examples=50)
@given(there=counts, ask_above=counts)
def test_once_a_person_said_yes_all_is_sent_and_nobody_is_asked_again(there: int, ask_above: int) -> None:
    assert batches(there, ask_above, YES) == (there, False)


@settings(derandomize=True, deadline=None, max_examples=100)
@given(sent=counts, ask_above=counts, left=counts)
def test_what_became_sendable_since_the_start_is_counted_before_it_crosses_the_threshold(
    sent: int, ask_above: int, left: int
) -> None:
    tally = Tally(before=START, after="x", sent=sent)

    if sent + min(left, BATCH) > ask_above:
        assert must_count(tally, None, ask_above=ask_above)
        assert must_ask(tally, Extent(deliveries=left, destinations=1), ask_above=ask_above) is (left > 0)


@settings(derandomize=True, deadline=None, max_examples=100)
@given(taken=st.lists(steps, max_size=6))
def test_a_tally_adds_up_only_goes_forward_and_survives_being_a_checkpoint(taken: list[Step]) -> None:
    tally = Tally(before=START)
    for step in taken:
        further = tally.plus(step)
        assert further.after >= tally.after
        assert further.before == START
        tally = Tally.of_checkpoint(json.loads(json.dumps(further.as_checkpoint())))
        assert tally == further

    assert tally.sent == sum(step.sent for step in taken)
    assert sum(tally.skipped.values()) == sum(sum(step.skipped.values()) for step in taken)


@settings(derandomize=True, deadline=None, max_examples=50)
@given(waiting=counts)
def test_it_waits_exactly_while_too_much_waits_already(waiting: int) -> None:
    pause = wait_for_room(waiting)

    assert (pause is not None) is (waiting > MOST_WAITING)
    assert pause is None or pause > timedelta(0)


def test_a_job_ends_with_what_was_there_when_it_began() -> None:
    earlier, later = START - timedelta(days=1), START + timedelta(days=1)

    assert start(START, None).before == start(START, later).before == START
    assert start(START, earlier).before == earlier


def test_the_past_of_a_new_destination_is_complete_after_a_while() -> None:
    assert wait_until_settled(START, START) == SETTLED_AFTER
    assert wait_until_settled(START, START + SETTLED_AFTER / 4) == SETTLED_AFTER * 3 / 4
    assert wait_until_settled(START, START + SETTLED_AFTER) is None


def test_only_a_no_declines() -> None:
    assert [declined(answer) for answer in (None, YES, NO)] == [False, False, True]


def test_the_question_says_how_many_go_where() -> None:
    some = consent("Replay", "deliveries", Extent(deliveries=5_000, destinations=3))
    many = consent("Send", "past submissions", Extent(deliveries=COUNTED_AT_MOST + 1, destinations=1))

    assert some.text == "Replay 5,000 deliveries to 3 destinations?"
    assert many.text == "Send more than 100,000 past submissions to 1 destination?"
    assert some.choices == many.choices == ("yes", "no")
    assert some.deadline is None
