"""The helper with which people test their handlers."""

from datetime import timedelta

import pytest

from hymical.adapters.memory.store import MemoryStore
from hymical.adapters.memory.transactions import MemoryTransactions
from hymical.domain.errors import InvalidPayload, InvalidValue
from hymical.domain.jobs import AskHuman, Ending, Finished, GiveUp, Json
from hymical.domain.progress import StepStatus
from hymical.entrypoints.jobs.registry import job
from hymical.ports.jobs import JobContext
from hymical.testing import run_job
from tests.job_types import Count, Nothing, ask, break_down, count

TRANSACTIONS = MemoryTransactions(MemoryStore())


async def test_a_run_tells_how_it_ended_what_it_published_and_saved() -> None:
    run = await run_job(count, Count(up_to=2), transactions=TRANSACTIONS)

    assert run.ending == Finished(result={"began_behind": 0})
    assert [(event.step, event.status, event.message) for event in run.events] == [
        ("count", StepStatus.PROGRESS, {"counted": 1}),
        ("count", StepStatus.PROGRESS, {"counted": 2}),
    ]
    assert run.checkpoint == {"counted": 2}


async def test_a_run_begins_with_what_an_earlier_one_saved() -> None:
    run = await run_job(count, {"up_to": 3}, checkpoint={"counted": 2}, transactions=TRANSACTIONS)

    assert run.ending == Finished(result={"began_behind": 2})
    assert len(run.events) == 1


async def test_a_run_knows_how_many_have_failed_before() -> None:
    @job(queue="default")
    async def give_up_in_the_end(payload: Nothing, context: JobContext) -> Ending:
        if context.job.retry_count < 2:
            raise RuntimeError
        return GiveUp(error="twice is enough")

    with pytest.raises(RuntimeError):
        await run_job(give_up_in_the_end, Nothing(), retry_count=1)
    assert (await run_job(give_up_in_the_end, Nothing(), retry_count=2)).ending == GiveUp(
        error="twice is enough"
    )


async def test_a_question_is_asked_and_its_answer_found() -> None:
    asked = await run_job(ask, Nothing())
    told_not_to = await run_job(ask, Nothing(), answers={"go_on": "no"})

    assert isinstance(asked.ending, AskHuman)
    assert asked.ending.question.key == "go_on"
    assert told_not_to.ending == GiveUp(error="was told not to")


async def test_a_payload_goes_through_the_model() -> None:
    with pytest.raises(InvalidPayload, match="up_to: field required"):
        await run_job(count, {})


async def test_an_exception_is_the_handlers_own() -> None:
    with pytest.raises(ZeroDivisionError, match="as told"):
        await run_job(break_down, Nothing())


async def test_what_is_no_json_is_refused_as_a_database_would() -> None:
    kept: Json = {"a": timedelta(1)}

    @job(queue="default")
    async def saves(payload: Nothing, context: JobContext) -> Ending:
        await context.save(kept)
        return Finished()

    @job(queue="default")
    async def publishes(payload: Nothing, context: JobContext) -> Ending:
        await context.publish("work", StepStatus.STARTED, kept)
        return Finished()

    @job(queue="default")
    async def returns(payload: Nothing, context: JobContext) -> Ending:
        return Finished(result=kept)

    for handler in (saves, publishes, returns):
        with pytest.raises(InvalidValue, match="JSON"):
            await run_job(handler, Nothing())


async def test_a_handler_that_does_not_say_how_it_ended_is_told() -> None:
    @job(queue="default")
    async def forgets(payload: Nothing, context: JobContext) -> Ending:
        return None  # type: ignore[return-value]  # what it forgets

    with pytest.raises(TypeError, match="returned NoneType, which is no way to end"):
        await run_job(forgets, Nothing())
