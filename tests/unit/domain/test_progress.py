"""What may be told of a job."""

import pytest

from hymical.domain.errors import InvalidValue
from hymical.domain.ids import JobId
from hymical.domain.jobs import Json
from hymical.domain.progress import LARGEST_MESSAGE, LONGEST_STEP, ProgressEvent, StepStatus, checked


def an_event(step: str = "work", message: Json | None = None) -> ProgressEvent:
    return ProgressEvent(job_id=JobId("job_1"), step=step, status=StepStatus.PROGRESS, message=message)


@pytest.mark.parametrize("message", [None, {}, {"done": 3}, {"a": "x" * (LARGEST_MESSAGE - 9)}])
def test_a_message_may_be_as_large_as_the_bound_and_may_be_left_out(message: Json | None) -> None:
    event = an_event("x" * LONGEST_STEP, message)

    assert checked(event) is event


@pytest.mark.parametrize(
    "message",
    [{"a": "x" * (LARGEST_MESSAGE - 8)}, {"a": "\ud800"}, {"a": float("inf")}, [1]],
    ids=["large", "surrogate", "infinity", "list"],
)
def test_a_message_that_would_break_every_list_of_jobs_is_refused(message: Json) -> None:
    with pytest.raises(InvalidValue) as refused:
        checked(an_event(message=message))
    assert refused.value.field == "message"


@pytest.mark.parametrize("step", ["", "a\0b", "\ud800", "x" * (LONGEST_STEP + 1)])
def test_a_step_that_cannot_be_stored_is_refused(step: str) -> None:
    with pytest.raises(InvalidValue) as refused:
        checked(an_event(step))
    assert refused.value.field == "step"
