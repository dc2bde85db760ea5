"""How a job ends a run, and what it may ask."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hymical.domain.errors import InvalidValue, UnknownJobType
from hymical.domain.jobs import (
    LARGEST_JSON,
    LONGEST_ANSWER,
    LONGEST_ERROR,
    LONGEST_QUESTION,
    LONGEST_UNIQUE_KEY,
    LONGEST_WAIT,
    MAX_LOST_IN_A_ROW,
    AskHuman,
    Completed,
    Ending,
    Errored,
    Failed,
    Finished,
    GiveUp,
    JobCatalog,
    JobFailure,
    JobType,
    Json,
    Later,
    Paused,
    Priority,
    Question,
    RetryLater,
    Settlement,
    SubjectGone,
    lost_for_good,
    settle,
)
from hymical.domain.retries import backoff
from tests.builders import a_job, a_question, ids

NO_JITTER = 0.5
HOUR = timedelta(hours=1)
PROPERTY = settings(derandomize=True, deadline=None, max_examples=50)
dice = st.floats(min_value=0, max_value=1, exclude_max=True)
# what an exception's text may hold: NUL and lone surrogates too
any_text = st.text(st.characters(), max_size=50)
stored_text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1)
questions = st.builds(a_question, deadline=st.sampled_from([None, HOUR]))
endings: st.SearchStrategy[Ending | Errored] = st.one_of(
    st.builds(Finished, result=st.none()),
    st.builds(RetryLater, after=st.timedeltas(max_value=LONGEST_WAIT), why=st.none() | any_text),
    st.builds(SubjectGone, what=stored_text),
    st.builds(GiveUp, error=any_text, reason=st.sampled_from(JobFailure)),
    st.builds(AskHuman, question=questions),
    st.builds(Errored, error=any_text),
)


# Ends


@pytest.mark.parametrize(
    ("ending", "settlement"),
    [
        (Finished(result={"rows": 3}), Completed(result={"rows": 3})),
        (Finished(), Completed()),
        (SubjectGone(what="frm_1"), Completed(result={"gone": "frm_1"})),
        (RetryLater(after=HOUR, why="busy"), Later(delay=HOUR, spends=False, error="busy")),
        (RetryLater(after=-HOUR), Later(delay=timedelta(0), spends=False)),
        (GiveUp(error="no use"), Failed(reason=JobFailure.GAVE_UP, error="no use")),
        (
            GiveUp(error="what is that?", reason=JobFailure.UNKNOWN_TYPE),
            Failed(reason=JobFailure.UNKNOWN_TYPE, error="what is that?"),
        ),
        (AskHuman(question=a_question()), Paused(question=a_question())),
        (Errored(error="boom"), Later(delay=timedelta(seconds=10), spends=True, error="boom")),
    ],
)
def test_each_ending_has_its_settlement(ending: Ending | Errored, settlement: Settlement) -> None:
    assert settle(a_job(), ending, NO_JITTER) == settlement


@PROPERTY
@given(max_retries=st.integers(0, 20), retry_count=st.integers(0, 20), dice=dice)
def test_an_error_is_retried_while_retries_last(max_retries: int, retry_count: int, dice: float) -> None:
    job = a_job(retry_count=retry_count, max_retries=max_retries)

    settlement = settle(job, Errored(error="boom"), dice)

    if retry_count < max_retries:
        assert settlement == Later(delay=backoff(retry_count + 1, dice), spends=True, error="boom")
    else:
        assert settlement == Failed(reason=JobFailure.EXHAUSTED, error="boom")


@PROPERTY
@given(max_retries=st.integers(0, 10), dice=dice)
def test_a_job_that_always_fails_runs_once_more_than_it_is_retried(max_retries: int, dice: float) -> None:
    runs = 0
    while True:
        settlement = settle(a_job(retry_count=runs, max_retries=max_retries), Errored(error="boom"), dice)
        runs += 1
        if isinstance(settlement, Failed):
            break

    assert runs == max_retries + 1


@PROPERTY
@given(ending=endings, retry_count=st.integers(0, 3), dice=dice)
def test_only_an_error_spends_a_retry_and_nothing_is_due_in_the_past(
    ending: Ending | Errored, retry_count: int, dice: float
) -> None:
    settlement = settle(a_job(retry_count=retry_count, max_retries=2), ending, dice)

    if isinstance(settlement, Later):
        assert settlement.spends == isinstance(ending, Errored)
        assert settlement.delay >= timedelta(0)


@PROPERTY
@given(ending=endings, dice=dice)
def test_what_an_error_says_can_be_stored(ending: Ending | Errored, dice: float) -> None:
    settlement = settle(a_job(), ending, dice)

    error = getattr(settlement, "error", None) or ""
    assert "\0" not in error
    assert error.encode().decode() == error
    assert len(error) <= LONGEST_ERROR


@pytest.mark.parametrize(
    "ending",
    [
        Errored(error="x" * 10_000),
        GiveUp(error="x" * 10_000),
        RetryLater(after=HOUR, why="x" * 10_000),
    ],
)
def test_a_long_error_is_cut(ending: Ending | Errored) -> None:
    settlement = settle(a_job(), ending, NO_JITTER)

    assert isinstance(settlement, Later | Failed)
    assert settlement.error == "x" * LONGEST_ERROR


@pytest.mark.parametrize(
    "result",
    [
        {"a": float("nan")},
        {"a": "\ud800"},
        {"a": object()},
        {"a": "x" * LARGEST_JSON},
        {"a": 10**5_000},
        ["no", "object"],
        7,
    ],
    ids=["nan", "surrogate", "object", "large", "long number", "list", "number"],
)
def test_a_result_that_could_not_be_shown_again_is_refused(result: Json) -> None:
    with pytest.raises(InvalidValue) as refused:
        Finished(result=result)
    assert refused.value.field == "result"


def test_a_wait_that_ends_behind_all_years_is_refused() -> None:
    RetryLater(after=LONGEST_WAIT)
    with pytest.raises(InvalidValue):
        RetryLater(after=LONGEST_WAIT + timedelta.resolution)
    with pytest.raises(InvalidValue):
        a_question(deadline=timedelta.max)


# Backing off


def test_a_retry_waits_four_times_as_long_as_the_one_before_up_to_an_hour() -> None:
    waits = [backoff(retry, NO_JITTER).total_seconds() for retry in range(1, 8)]

    assert waits == [10, 40, 160, 640, 2560, 3600, 3600]


@PROPERTY
@given(retry=st.integers(1, 10**6), dice=dice)
def test_a_retry_never_waits_for_less_than_8_seconds_or_more_than_72_minutes(retry: int, dice: float) -> None:
    assert timedelta(seconds=8) <= backoff(retry, dice) <= timedelta(minutes=72)


# Lost workers


@pytest.mark.parametrize("lost", range(MAX_LOST_IN_A_ROW))
def test_a_job_whose_worker_was_lost_a_few_times_runs_again(lost: int) -> None:
    assert lost_for_good(a_job(lost_in_a_row=lost)) is None


@pytest.mark.parametrize("lost", [MAX_LOST_IN_A_ROW, MAX_LOST_IN_A_ROW + 1])
def test_a_job_that_kills_its_workers_ends(lost: int) -> None:
    end = lost_for_good(a_job(lost_in_a_row=lost))

    assert end == Failed(reason=JobFailure.WORKER_LOST, error=f"its worker was lost {lost} times in a row")


# Questions


@PROPERTY
@given(text=st.text(st.characters(), max_size=20))
def test_a_free_question_takes_any_text_that_can_be_stored(text: str) -> None:
    question = a_question(choices=())
    storable = "\0" not in text and not any("\ud800" <= char <= "\udfff" for char in text)

    if text.strip() and storable:
        assert question.check(text) == text
    else:
        with pytest.raises(InvalidValue) as refused:
            question.check(text)
        assert refused.value.field == "answer"


@pytest.mark.parametrize("text", ["", "Send\0?", "Send\ud800?", "x" * (LONGEST_QUESTION + 1)])
def test_a_question_that_a_database_could_not_read_back_is_refused(text: str) -> None:
    with pytest.raises(InvalidValue) as refused:
        Question(key="send", text=text)
    assert refused.value.field == "text"
    with pytest.raises(InvalidValue) as refused:
        a_question(choices=("yes", "no", text))
    assert refused.value.field == "choices"


def test_the_longest_answer_is_taken_and_no_longer_one() -> None:
    question = a_question(choices=())

    assert question.check("x" * LONGEST_ANSWER)
    with pytest.raises(InvalidValue):
        question.check("x" * (LONGEST_ANSWER + 1))


@pytest.mark.parametrize("text", ["maybe", "Yes", " yes", "yes ", ""])
def test_a_question_with_choices_takes_one_of_them_and_names_them(text: str) -> None:
    assert a_question().check("yes") == "yes"
    with pytest.raises(InvalidValue, match="yes, no"):
        a_question().check(text)


@pytest.mark.parametrize("key", ["", "Send", "1st", "a b", "é", "a" * 64, "send\n"])
def test_a_question_s_key_is_a_name(key: str) -> None:
    with pytest.raises(InvalidValue) as refused:
        a_question(key)
    assert refused.value.field == "key"


@pytest.mark.parametrize("span", [60, 1.5, datetime(2026, 1, 1, tzinfo=UTC)])
def test_a_timeout_in_plain_seconds_was_taken_and_failed_at_each_run(span: Any) -> None:
    with pytest.raises(InvalidValue, match="must be a timedelta"):
        JobType(name="count", queue="default", timeout=span)
    with pytest.raises(InvalidValue, match="must be a timedelta"):
        Question(key="send", text="Send?", deadline=span, default="yes")


def test_a_timeout_of_no_time_is_refused() -> None:
    with pytest.raises(InvalidValue, match="must be above zero"):
        JobType(name="count", queue="default", timeout=timedelta(0))


def test_a_deadline_needs_a_default_and_a_default_needs_a_deadline() -> None:
    with pytest.raises(InvalidValue):
        Question(key="send", text="Send?", deadline=HOUR)
    with pytest.raises(InvalidValue):
        Question(key="send", text="Send?", default="yes")
    assert Question(key="send", text="Send?", deadline=HOUR, default="yes").default == "yes"


@pytest.mark.parametrize(("choices", "default"), [(("yes", "no"), "maybe"), ((), " "), ((), "a\0b")])
def test_a_default_must_itself_be_an_answer(choices: tuple[str, ...], default: str) -> None:
    with pytest.raises(InvalidValue):
        Question(key="send", text="Send?", choices=choices, deadline=HOUR, default=default)


# Types


@pytest.mark.parametrize(("name", "queue"), [("Export", "default"), ("export", "My Queue"), ("", "default")])
def test_a_type_and_its_queue_have_names(name: str, queue: str) -> None:
    with pytest.raises(InvalidValue):
        JobType(name=name, queue=queue)


def test_a_job_takes_after_its_type_unless_told_otherwise() -> None:
    catalog = JobCatalog(
        types={
            "export": JobType(
                name="export", queue="exports", version=2, priority=Priority.LOW, max_retries=0
            ),
            "count": JobType(name="count", queue="default"),
        },
        max_retries=7,
    )

    export = catalog.job("export", {"form_id": "contact"}, id=ids.job())
    count = catalog.job("count", {}, id=ids.job(), priority=Priority.URGENT, unique_key="all")

    assert (export.queue, export.version, export.priority, export.max_retries) == (
        "exports",
        2,
        Priority.LOW,
        0,
    )
    assert (json.loads(export.payload), export.run_at, export.unique_key) == (
        {"form_id": "contact"},
        None,
        None,
    )
    assert (count.queue, count.priority, count.max_retries) == ("default", Priority.URGENT, 7)
    assert count.unique_key == "all"
    with pytest.raises(UnknownJobType):
        catalog.job("import", {}, id=ids.job())
    with pytest.raises(InvalidValue):
        catalog.job("count", {"a": "x" * LARGEST_JSON}, id=ids.job())
    with pytest.raises(InvalidValue):
        catalog.job("count", {}, id=ids.job(), unique_key="x" * (LONGEST_UNIQUE_KEY + 1))
