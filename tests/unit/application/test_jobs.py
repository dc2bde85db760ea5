"""Running one job: every way in which a handler can end, and what is settled for it."""

import asyncio
import logging
from collections.abc import Callable
from datetime import timedelta

import pytest

from hymical.application.jobs import ClaimJobs, EnqueueJob, JobClaim, RunJob, SettleJobs
from hymical.domain.errors import InvalidPayload, InvalidValue, StorageUnavailable, UnknownJobType
from hymical.domain.jobs import (
    MAX_LOST_IN_A_ROW,
    AskHuman,
    Completed,
    Ending,
    Failed,
    Finished,
    GiveUp,
    JobCatalog,
    JobFailure,
    JobState,
    JobType,
    Later,
    Paused,
    Priority,
    RetryLater,
    Settlement,
    SubjectGone,
)
from hymical.domain.progress import ProgressEvent, StepStatus
from hymical.ports.jobs import JobContext, JobHandler, RunnableJob, SettledJob
from tests.builders import LEASE, a_new_job, a_question, ids
from tests.clocks import START
from tests.worlds import World, memory_world


class OneHandler:
    """The port `JobHandlers`, with one for the type `count`."""

    def __init__(self, handler: JobHandler, limit: timedelta | None = None) -> None:
        self._runnable = RunnableJob(handler=handler, timeout=limit)

    def find(self, type: str) -> RunnableJob | None:
        return self._runnable if type == "count" else None


class Run:
    """One job in a memory world, claimed and run by a handler."""

    def __init__(self, *, type: str = "count", max_retries: int = 3) -> None:
        self.world: World = memory_world()
        self.new = a_new_job(type=type, max_retries=max_retries)

    async def claim(self) -> JobClaim:
        await self.world.jobs.enqueue([self.new])
        return await ClaimJobs(queue=self.world.jobs, lease=LEASE, clock=self.world.clock)(["default"], 10)

    async def settled(self, handler: JobHandler, *, limit: timedelta | None = None) -> SettledJob | None:
        claim = await self.claim()
        (job,) = claim.to_run
        run_job = RunJob(
            handlers=OneHandler(handler, limit),
            queue=self.world.jobs,
            progress=self.world.progress,
            clock=self.world.clock,
            ids=ids,
        )
        return await run_job(job, now=claim.now, claimed_at=claim.claimed_at)

    async def settlement(self, handler: JobHandler, *, limit: timedelta | None = None) -> Settlement:
        settled = await self.settled(handler, limit=limit)
        assert settled is not None
        return settled.settlement


def ends(ending: Ending) -> JobHandler:
    async def handler(context: JobContext) -> Ending:
        return ending

    return handler


def raises(error: BaseException) -> JobHandler:
    async def handler(context: JobContext) -> Ending:
        raise error

    return handler


async def hangs(context: JobContext) -> Ending:
    await asyncio.Event().wait()
    return Finished()


async def test_an_ending_is_settled_as_it_is_said(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    assert await Run().settlement(ends(Finished(result={"a": 1}))) == Completed(result={"a": 1})
    assert await Run().settlement(ends(SubjectGone(what="the form"))) == Completed(
        result={"gone": "the form"}
    )
    assert [record.levelname for record in caplog.records] == ["INFO"]
    assert await Run().settlement(ends(GiveUp(error="no use"))) == Failed(
        reason=JobFailure.GAVE_UP, error="no use"
    )
    soon = timedelta(seconds=3)
    assert await Run().settlement(ends(RetryLater(after=soon, why="busy"))) == Later(
        delay=soon, spends=False, error="busy"
    )


async def test_a_question_pauses_its_job_and_is_told_to_whoever_watches() -> None:
    run, question = Run(), a_question()

    settled = await run.settled(ends(AskHuman(question=question)))

    assert settled is not None
    assert settled.settlement == Paused(question=question)
    assert settled.event == ProgressEvent(
        job_id=run.new.id,
        step="send",
        status=StepStatus.PAUSED,
        message={"question": "Send them all?", "choices": ["yes", "no"]},
    )


async def test_an_exception_is_an_error_that_spends_a_retry_and_its_traceback_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    settlement = await Run().settlement(raises(ZeroDivisionError("by nought")))

    assert isinstance(settlement, Later)
    assert (settlement.spends, settlement.error) == (True, "ZeroDivisionError: by nought")
    assert "Traceback" in caplog.text


async def test_the_last_exception_fails_the_job() -> None:
    assert await Run(max_retries=0).settlement(raises(ZeroDivisionError("by nought"))) == Failed(
        reason=JobFailure.EXHAUSTED, error="ZeroDivisionError: by nought"
    )


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise ZeroDivisionError


class Fatal(BaseException):
    pass


@pytest.mark.parametrize(
    "error",
    [
        SystemExit(1),
        KeyboardInterrupt(),
        asyncio.CancelledError("of another task"),
        Fatal(),
        BaseExceptionGroup("of a task group", [Fatal()]),
        Unspeakable(),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_a_handler_that_would_end_its_worker_has_only_failed(error: BaseException) -> None:
    settlement = await Run().settlement(raises(error))

    assert isinstance(settlement, Later)
    assert settlement.error is not None
    assert settlement.error.startswith(type(error).__name__)


@pytest.mark.parametrize(
    "ending",
    [
        lambda: GiveUp(error=ValueError("no text")),  # type: ignore[arg-type]  # as careless handlers do
        lambda: SubjectGone(what=7),  # type: ignore[arg-type]
        lambda: RetryLater(after=5),  # type: ignore[arg-type]
        lambda: Finished(result=[1]),  # type: ignore[arg-type]
        lambda: AskHuman(question=None),  # type: ignore[arg-type]
        lambda: AskHuman(question=a_question(choices=tuple(f"{one:02}" + "x" * 9_000 for one in range(20)))),
    ],
)
async def test_an_ending_that_cannot_be_written_is_an_error_of_its_handler_and_no_lost_worker(
    ending: Callable[[], Ending],
) -> None:
    async def handler(context: JobContext) -> Ending:
        return ending()

    settlement = await Run(max_retries=0).settlement(handler)

    assert isinstance(settlement, Failed)
    assert settlement.reason is JobFailure.EXHAUSTED


async def test_what_could_not_be_shown_again_is_neither_published_nor_saved() -> None:
    run, endless = Run(), {"a": float("inf")}

    async def handler(context: JobContext) -> Ending:
        with pytest.raises(InvalidValue):
            await context.publish("work", StepStatus.PROGRESS, endless)
        with pytest.raises(InvalidValue):
            await context.save(endless)
        return Finished()

    assert await run.settlement(handler) == Completed()
    assert await run.world.progress.since(run.new.id, 0) == ()


async def test_a_run_that_is_cancelled_is_not_settled() -> None:
    running = asyncio.create_task(Run().settled(hangs))
    await asyncio.sleep(0)
    running.cancel()

    with pytest.raises(asyncio.CancelledError):
        await running


async def test_a_run_that_takes_too_long_is_an_error() -> None:
    settlement = await Run(max_retries=0).settlement(hangs, limit=timedelta(milliseconds=10))

    assert settlement == Failed(
        reason=JobFailure.EXHAUSTED, error="TimeoutError: it took longer than 0:00:00.010000"
    )


async def test_a_timeout_within_a_handler_is_told_as_what_it_is() -> None:
    settlement = await Run(max_retries=0).settlement(raises(TimeoutError("the source")), limit=LEASE)

    assert settlement == Failed(reason=JobFailure.EXHAUSTED, error="TimeoutError: the source")


@pytest.mark.parametrize(
    "error", [StorageUnavailable(), ExceptionGroup("of a task group", [ValueError(), StorageUnavailable()])]
)
async def test_a_database_that_is_away_spends_no_retry(error: Exception) -> None:
    settlement = await Run(max_retries=0).settlement(raises(error))

    assert isinstance(settlement, Later)
    assert settlement.spends is False
    assert settlement.error == "the database was away"


async def test_an_unknown_type_fails_with_that_reason() -> None:
    assert await Run(type="unheard_of").settlement(hangs) == Failed(
        reason=JobFailure.UNKNOWN_TYPE,
        error="the worker that took it has no job type unheard_of: start it with one that has, then retry the job",
    )


async def test_a_payload_that_does_not_parse_fails_with_that_reason() -> None:
    assert await Run().settlement(raises(InvalidPayload("up_to: field required"))) == Failed(
        reason=JobFailure.INVALID_PAYLOAD, error="its payload does not fit: up_to: field required"
    )


async def test_nothing_is_settled_for_a_job_that_was_lost_while_it_ran() -> None:
    run = Run()

    async def handler(context: JobContext) -> Ending:
        await run.world.jobs.cancel(context.job.id)
        await context.publish("work", StepStatus.STARTED)
        return Finished()

    assert await run.settled(handler) is None
    assert list(await run.world.progress.since(run.new.id, 0)) == []


async def test_a_handler_publishes_saves_and_knows_the_databases_time() -> None:
    run = Run()

    async def handler(context: JobContext) -> Ending:
        await context.publish("work", StepStatus.STARTED, {"of": 3})
        await context.save({"done": 1})
        run.world.clock.move(timedelta(seconds=7))
        return Finished(result={"now": context.now.isoformat()})

    settlement = await run.settlement(handler)

    assert settlement == Completed(result={"now": (START + timedelta(seconds=7)).isoformat()})
    (recorded,) = await run.world.progress.since(run.new.id, 0)
    assert (recorded.event.step, recorded.event.message) == ("work", {"of": 3})
    run.world.clock.move(LEASE)
    (again,) = (await run.world.jobs.claim(["default"], limit=1, lease=LEASE)).jobs
    assert again.checkpoint == {"done": 1}


async def test_a_job_that_lost_its_worker_too_often_is_not_run_again() -> None:
    run = Run()
    claim = await run.claim()
    for _ in range(MAX_LOST_IN_A_ROW):
        run.world.clock.move(LEASE)
        claim = await ClaimJobs(queue=run.world.jobs, lease=LEASE, clock=run.world.clock)(["default"], 10)

    assert claim.to_run == []
    await SettleJobs(queue=run.world.jobs)(claim.given_up)
    view = await run.world.job_history.get(run.new.id)
    assert (view.state, view.failure_reason) == (JobState.FAILED, JobFailure.WORKER_LOST)


async def test_a_job_is_queued_as_its_type_says_unless_told_otherwise() -> None:
    world = memory_world()
    kind = JobType(name="count", queue="counts", version=2, priority=Priority.LOW)
    enqueue = EnqueueJob(catalog=JobCatalog(types={"count": kind}, max_retries=3), queue=world.jobs, ids=ids)

    first = await enqueue("count", {"up_to": 1}, unique_key="one")
    again = await enqueue("count", {"up_to": 2}, unique_key="one")
    urgent = await enqueue("count", {"up_to": 3}, priority=Priority.URGENT, run_at=START + LEASE)

    assert (first.duplicate, again.duplicate, again.job_id) == (False, True, first.job_id)
    view = await world.job_history.get(first.job_id)
    assert (view.queue, view.version, view.priority, view.max_retries) == ("counts", 2, Priority.LOW, 3)
    view = await world.job_history.get(urgent.job_id)
    assert (view.priority, view.run_at) == (Priority.URGENT, START + LEASE)
    with pytest.raises(UnknownJobType):
        await enqueue("unheard_of", {})
