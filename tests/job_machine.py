"""Everything that may happen to jobs, in any order, held against a model of what the queue promises."""

import asyncio
import json
from abc import abstractmethod
from collections.abc import Awaitable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TypeVar, assert_never

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    MultipleResults,
    RuleBasedStateMachine,
    invariant,
    multiple,
    precondition,
    rule,
)

from hymical.domain.errors import (
    AlreadyExists,
    InvalidValue,
    JobEnded,
    JobLost,
    JobNotFailed,
    JobNotWaiting,
    NotFound,
)
from hymical.domain.ids import JobId, LeaseToken
from hymical.domain.jobs import (
    BY_DEFAULT,
    FINAL,
    MAX_LOST_IN_A_ROW,
    Answer,
    AskHuman,
    Completed,
    Ending,
    Errored,
    Failed,
    Finished,
    GiveUp,
    Job,
    JobFailure,
    JobState,
    Json,
    Later,
    NewJob,
    Paused,
    Priority,
    Question,
    RetryLater,
    Settlement,
    SubjectGone,
    lost_for_good,
    settle,
)
from hymical.domain.progress import ProgressEvent, StepStatus
from hymical.ports.jobs import ClaimedJobs, Enqueued, JobFilter, JobVerdict, JobView, SettledJob
from tests.builders import LEASE, a_new_job, a_question
from tests.worlds import World

_Result = TypeVar("_Result")

EVERYTHING = 10_000
AT_ONCE = timedelta(0)
MINUTE = timedelta(minutes=1)
QUEUES = ("default", "exports")
KEYS = ("send", "whom")
MAX_RETRIES = 1
CHOICE = st.integers(0, EVERYTHING)
DICE = st.sampled_from([0.0, 0.5, 0.999])
WAITS = st.sampled_from([AT_ONCE, timedelta(seconds=10), timedelta(hours=1)])
QUESTIONS = st.builds(
    a_question,
    st.sampled_from(KEYS),
    choices=st.sampled_from([("yes", "no"), ()]),
    deadline=st.sampled_from([None, MINUTE]),
)
ENDINGS: st.SearchStrategy[Ending | Errored] = st.one_of(
    st.just(Finished(result={"rows": 3})),
    st.just(SubjectGone(what="frm_1")),
    st.builds(RetryLater, after=WAITS, why=st.sampled_from([None, "not now"])),
    st.just(GiveUp(error="no use")),
    st.builds(AskHuman, question=QUESTIONS),
    st.just(Errored(error="boom")),
)


@dataclass(slots=True, kw_only=True)
class Expected:
    """What one job must look like."""

    new: NewJob
    state: JobState = JobState.PENDING
    run_at: datetime
    created_at: datetime
    started_at: datetime | None = None
    finished_at: datetime | None = None
    token: LeaseToken | None = None
    leased_until: datetime | None = None
    claims: int = 0
    retries: int = 0
    lost_in_a_row: int = 0
    question: Question | None = None
    answer_by: datetime | None = None
    answers: dict[str, Answer] = field(default_factory=dict)
    early: set[str] = field(default_factory=set)
    checkpoint: Json | None = None
    steps: list[str] = field(default_factory=list)
    result: Json | None = None
    reason: JobFailure | None = None
    error: str | None = None

    @property
    def id(self) -> JobId:
        return self.new.id

    def held_by(self, job: Job) -> bool:
        return self.state is JobState.PROCESSING and self.token == job.lease.token

    def claimable(self, now: datetime) -> bool:
        if self.state is JobState.PENDING:
            return self.run_at <= now
        return self.leased_until is not None and self.leased_until <= now

    def overdue(self, now: datetime) -> bool:
        """Whether its question's deadline has passed."""
        return self.answer_by is not None and self.answer_by <= now

    def next_change(self) -> datetime | None:
        return self.run_at if self.state is JobState.PENDING else self.leased_until or self.answer_by

    def answered(self, answer: Answer) -> None:
        assert self.question is not None
        self.answers[self.question.key] = answer
        self.state, self.run_at = JobState.PENDING, answer.at
        self.question, self.answer_by = None, None

    def claimed(self, job: Job, now: datetime, lease: timedelta) -> None:
        self.lost_in_a_row += self.state is JobState.PROCESSING
        self.claims += 1
        self.state, self.token, self.leased_until = JobState.PROCESSING, job.lease.token, now + lease
        self.started_at = self.started_at or now
        assert (job.lease.job_id, job.queue, job.type, job.version) == (
            self.id,
            self.new.queue,
            self.new.type,
            self.new.version,
        )
        assert (job.payload, job.priority, job.max_retries) == (
            json.loads(self.new.payload),
            self.new.priority,
            self.new.max_retries,
        )
        assert (job.claim_count, job.retry_count, job.lost_in_a_row) == (
            self.claims,
            self.retries,
            self.lost_in_a_row,
        )
        given = {key: answer for key, answer in self.answers.items() if key not in self.early}
        assert (job.answers, job.checkpoint) == (given, self.checkpoint)

    def end(self, settlement: Settlement, now: datetime) -> None:
        self.leased_until, self.lost_in_a_row = None, 0
        match settlement:
            case Completed(result=result):
                self.state, self.finished_at = JobState.COMPLETED, now
                self.result, self.error = result, None
            case Failed(reason=reason, error=error):
                self.state, self.finished_at = JobState.FAILED, now
                self.reason, self.error = reason, error
            case Later(delay=delay, spends=spends, error=error):
                self.state, self.run_at, self.error = JobState.PENDING, now + delay, error
                self.retries += spends
            case Paused(question=question):
                self.steps.append("ask")
                self._ask(question, now)
            case _:
                assert_never(settlement)

    def _ask(self, question: Question, now: datetime) -> None:
        early = self.answers.get(question.key) if question.key in self.early else None
        self.early.discard(question.key)
        if early is not None and (not question.choices or early.text in question.choices):
            self.state, self.run_at = JobState.PENDING, now
            return
        self.answers.pop(question.key, None)
        self.state, self.question = JobState.PAUSED, question
        self.answer_by = None if question.deadline is None else now + question.deadline

    def let_go(self, state: JobState, now: datetime) -> None:
        """The claim ends without a settlement, and its holder is a stranger from now on."""
        self.state, self.token, self.leased_until = state, None, None
        self.question, self.answer_by = None, None
        if state in FINAL:
            self.finished_at = now

    def seen(self, view: JobView) -> bool:
        return (
            view.state,
            view.run_at,
            view.retry_count,
            view.question,
            view.answer_by,
            view.answers,
            view.progress and view.progress.step,
            view.event_count,
            view.result,
            view.failure_reason,
            view.error,
            view.created_at,
            view.started_at,
            view.finished_at,
        ) == (
            self.state,
            self.run_at,
            self.retries,
            self.question,
            self.answer_by,
            self.answers,
            self.steps[-1] if self.steps else None,
            len(self.steps),
            self.result,
            self.reason,
            self.error,
            self.created_at,
            self.started_at,
            self.finished_at,
        )


class JobMachine(RuleBasedStateMachine):
    """Workers claim, save, publish, renew, settle late or twice, hand back, and are never heard of again.

    Meanwhile people answer, cancel, retry, delete, and pause queues. A job that was given out stays in `held`
    for good, whoever holds it by now: writing with any of them at any time is what slow, stalled and
    resurrected workers do.
    """

    held: Bundle[Job] = Bundle("held")

    repeats_claims_at_once = True
    """Whether claims at the same time share out in the same way each time; a run must be repeatable."""

    @abstractmethod
    def opened(self) -> AbstractAsyncContextManager[World]:
        """An empty world."""

    def __init__(self) -> None:
        super().__init__()
        self._loop = asyncio.new_event_loop()
        self._open = AsyncExitStack()
        self._world = self._await(self._open.enter_async_context(self.opened()))
        self._expected: dict[JobId, Expected] = {}
        self._claimed: dict[LeaseToken, Job] = {}
        self._touched: set[JobId] = set()
        self._stopped: set[str] = set()
        for queue in QUEUES:
            self._enqueue([a_new_job(queue, max_retries=MAX_RETRIES) for _ in range(3)])

    def teardown(self) -> None:
        self._await(self._open.aclose())
        self._loop.close()

    # What people do

    @rule(
        wanted=st.lists(
            st.tuples(
                st.sampled_from(QUEUES),
                st.sampled_from(Priority),
                st.sampled_from([None, AT_ONCE, MINUTE]),
                st.sampled_from([None, None, "contact", "survey"]),
            ),
            min_size=1,
            max_size=4,
        )
    )
    def jobs_are_enqueued(self, wanted: list[tuple[str, Priority, timedelta | None, str | None]]) -> None:
        self._enqueue(
            [
                a_new_job(
                    queue,
                    priority=priority,
                    max_retries=MAX_RETRIES,
                    run_at=None if wait is None else self._now + wait,
                    unique_key=unique_key,
                )
                for queue, priority, wait, unique_key in wanted
            ]
        )

    @precondition(lambda self: bool(self._in(JobState.PAUSED)))
    @rule(choice=CHOICE, text=st.sampled_from(["yes", "no", "maybe"]), named=st.booleans())
    def somebody_answers(self, choice: int, text: str, named: bool) -> None:  # noqa: FBT001
        expected = self._chosen(choice, self._in(JobState.PAUSED))
        assert expected.question is not None
        key = expected.question.key if named else None
        if expected.question.choices and text not in expected.question.choices:
            with pytest.raises(InvalidValue):
                self._await(self._world.jobs.answer(expected.id, text, by="key_1", key=key))
            return
        self._await(self._world.jobs.answer(expected.id, text, by="key_1", key=key))
        expected.answered(Answer(text=text, by="key_1", at=self._now))

    @precondition(lambda self: bool(self._expected))
    @rule(choice=CHOICE, text=st.sampled_from(["yes", "maybe"]), key=st.sampled_from(KEYS))
    def somebody_answers_what_was_not_asked(self, choice: int, text: str, key: str) -> None:
        expected = self._chosen(choice, list(self._expected.values()))
        if expected.question is not None and expected.question.key == key:
            return
        waits = expected.state in {JobState.PENDING, JobState.PROCESSING}
        if not waits or key in expected.answers:
            with pytest.raises(JobNotWaiting) as refusal:
                self._await(self._world.jobs.answer(expected.id, text, by="key_2", key=key))
            assert refusal.value.state == expected.state
            return
        self._answer_early(expected, key, text)

    @precondition(lambda self: bool(self._expected))
    @rule(choice=CHOICE)
    def somebody_cancels(self, choice: int) -> None:
        expected = self._chosen(choice, list(self._expected.values()))
        if expected.state in FINAL:
            with pytest.raises(JobEnded) as refusal:
                self._await(self._world.jobs.cancel(expected.id))
            assert refusal.value.state == expected.state
            return
        self._await(self._world.jobs.cancel(expected.id))
        expected.let_go(JobState.CANCELLED, self._now)

    @precondition(lambda self: bool(self._in(JobState.FAILED)))
    @rule(choice=CHOICE)
    def somebody_retries_what_failed(self, choice: int) -> None:
        expected = self._chosen(choice, self._in(JobState.FAILED))
        if self._open_with(expected.new.unique_key) is not None:
            with pytest.raises(AlreadyExists):
                self._await(self._world.jobs.retry(expected.id))
            return
        self._await(self._world.jobs.retry(expected.id))
        expected.state, expected.run_at = JobState.PENDING, self._now
        expected.retries, expected.reason, expected.finished_at = 0, None, None

    @precondition(lambda self: len(self._in(JobState.FAILED)) < len(self._expected))
    @rule(choice=CHOICE)
    def somebody_retries_what_did_not(self, choice: int) -> None:
        others = [one for one in self._expected.values() if one.state is not JobState.FAILED]
        expected = self._chosen(choice, others)
        with pytest.raises(JobNotFailed) as refusal:
            self._await(self._world.jobs.retry(expected.id))
        assert refusal.value.state == expected.state

    @precondition(lambda self: len(self._expected) > len(QUEUES))
    @rule(choice=CHOICE)
    def a_job_is_deleted(self, choice: int) -> None:
        expected = self._chosen(choice, list(self._expected.values()))
        self._await(self._world.delete_job(expected.id))
        del self._expected[expected.id]
        self._touched.discard(expected.id)
        with pytest.raises(NotFound):
            self._await(self._world.jobs.cancel(expected.id))
        assert not self._await(self._world.progress.since(expected.id, 0))

    @rule(queue=st.sampled_from(QUEUES))
    def a_queue_is_paused_and_looked_at(self, queue: str) -> None:
        self._await(self._world.jobs.pause_queue(queue))
        self._stopped.add(queue)
        assert not self._claim([queue], EVERYTHING, LEASE)

    @rule(queue=st.sampled_from(QUEUES))
    def a_queue_is_resumed(self, queue: str) -> None:
        self._resume(queue)

    # What time and workers do

    @rule(
        step=st.sampled_from(
            [
                timedelta(microseconds=1),
                timedelta(seconds=10),
                LEASE - timedelta(microseconds=1),
                LEASE,
                timedelta(hours=2),
            ]
        )
    )
    def time_passes(self, step: timedelta) -> None:
        self._world.clock.move(step)

    @rule(
        target=held,
        queues=st.sampled_from([("default",), ("exports",), QUEUES, QUEUES]),
        limit=st.integers(1, 4),
        lease=st.sampled_from([LEASE, AT_ONCE]),
    )
    def a_worker_claims(self, queues: tuple[str, ...], limit: int, lease: timedelta) -> MultipleResults[Job]:
        return multiple(*self._claim(queues, limit, lease))

    @precondition(lambda self: self.repeats_claims_at_once)
    @rule(target=held, limits=st.lists(st.integers(1, 3), min_size=2, max_size=3))
    def workers_claim_at_the_same_time(self, limits: list[int]) -> MultipleResults[Job]:
        now = self._now
        claimable = {one.id for one in self._claimable(QUEUES)} | {one.id for one in self._overdue(QUEUES)}
        claims = self._await(
            _all([self._world.jobs.claim(QUEUES, limit=limit, lease=LEASE) for limit in limits])
        )
        jobs = [job for claim in claims for job in claim.jobs]
        assert len({job.id for job in jobs}) == len(jobs)
        assert {job.id for job in jobs} <= claimable
        self._defaults_taken(QUEUES, now)
        self._taken(jobs, LEASE)
        return multiple(*jobs)

    @precondition(lambda self: bool(self._claimable(QUEUES)))
    @rule(target=held, times=st.integers(1, MAX_LOST_IN_A_ROW + 1))
    def workers_crash_one_after_the_other(self, times: int) -> MultipleResults[Job]:
        """A job that kills whoever takes it: each claim is forgotten, and its lease ends."""
        forgotten: list[Job] = []
        for _ in range(times):
            forgotten += self._claim(QUEUES, 1, AT_ONCE)
        return multiple(*forgotten)

    @precondition(lambda self: bool(self._claimed))
    @rule(
        reports=st.lists(
            st.tuples(held, ENDINGS, DICE),
            min_size=1,
            max_size=4,
            unique_by=lambda report: report[0].lease.token,
        )
    )
    def anyone_reports(self, reports: list[tuple[Job, Ending | Errored, float]]) -> None:
        self._report([(job, settle(job, ending, dice)) for job, ending, dice in reports])

    @precondition(lambda self: bool(self._holders()))
    @rule(endings=st.lists(ENDINGS, min_size=1, max_size=4), dice=DICE)
    def the_holders_report(self, endings: list[Ending | Errored], dice: float) -> None:
        # one more ending than there are holders is nobody's
        self._report([(job, settle(job, ending, dice)) for job, ending in zip(self._holders(), endings)])  # noqa: B905

    @precondition(lambda self: bool(self._holders()))
    @rule(choice=CHOICE, question=QUESTIONS, text=st.sampled_from([None, "yes", "maybe"]))
    def a_holder_asks(self, choice: int, question: Question, text: str | None) -> None:
        """With a text, somebody answers while the question is on its way."""
        holders = self._holders()
        job = holders[choice % len(holders)]
        if text is not None and question.key not in self._expected[job.id].answers:
            self._answer_early(self._expected[job.id], question.key, text)
        self._report([(job, Paused(question=question))])

    @precondition(lambda self: bool(self._claimed))
    @rule(jobs=st.lists(held, min_size=1, max_size=3, unique_by=lambda job: job.lease.token))
    def anyone_renews(self, jobs: list[Job]) -> None:
        leases = [job.lease for job in jobs]
        still = {job.id for job in jobs if self._holds(job)}
        assert set(self._await(self._world.jobs.still_held(leases))) == still
        assert set(self._await(self._world.jobs.renew(leases, lease=LEASE))) == still
        for job_id in still:
            self._expected[job_id].leased_until = self._now + LEASE

    @precondition(lambda self: bool(self._claimed))
    @rule(job=held, row=st.integers(0, 9))
    def anyone_saves(self, job: Job, row: int) -> None:
        if not self._holds(job):
            with pytest.raises(JobLost):
                self._await(self._world.jobs.save(job.lease, {"row": row}))
            return
        self._await(self._world.jobs.save(job.lease, {"row": row}))
        self._expected[job.id].checkpoint = {"row": row}

    @precondition(lambda self: bool(self._claimed))
    @rule(job=held, steps=st.lists(st.sampled_from(["read", "write"]), min_size=1, max_size=3))
    def anyone_publishes(self, job: Job, steps: list[str]) -> None:
        events = [ProgressEvent(job_id=job.id, step=step, status=StepStatus.PROGRESS) for step in steps]
        self._touched.add(job.id)
        if not self._holds(job):
            with pytest.raises(JobLost):
                self._await(self._world.progress.publish(job.lease, events))
            return
        self._await(self._world.progress.publish(job.lease, events))
        self._expected[job.id].steps += steps

    @precondition(lambda self: bool(self._claimed))
    @rule(jobs=st.lists(held, min_size=1, max_size=3, unique_by=lambda job: job.lease.token))
    def a_worker_hands_back(self, jobs: list[Job]) -> None:
        still = {job.id for job in jobs if self._holds(job)}
        self._await(self._world.jobs.release([job.lease for job in jobs]))
        for job_id in still:
            self._expected[job_id].let_go(JobState.PENDING, self._now)

    @rule(target=held, limit=st.integers(1, 4))
    def in_the_end_everything_ends(self, limit: int) -> MultipleResults[Job]:
        """Nothing is lost: whatever happened before, what has not ended can be taken, and ends."""
        for queue in QUEUES:
            self._resume(queue)
        for one in self._in(JobState.PAUSED):
            self._await(self._world.jobs.answer(one.id, "yes", by="key_1"))
            one.answered(Answer(text="yes", by="key_1", at=self._now))
        self._world.clock.move(timedelta(days=2))
        taken = list[Job]()
        for _ in range(len(self._expected) + 1):
            jobs = self._claim(QUEUES, limit, LEASE)
            self._report([(job, Completed()) for job in jobs if self._holds(job)])
            taken += jobs
        assert all(one.state in FINAL for one in self._expected.values())
        return multiple(*taken)

    # What must hold

    @invariant()
    def every_job_is_what_the_model_says(self) -> None:
        """What has ended never changes again but by a retry by hand."""
        views = self._await(self._world.job_history.page(JobFilter(), before=None, limit=EVERYTHING))
        assert [view.id for view in views] == sorted(self._expected, reverse=True)
        for view in views:
            assert self._expected[view.id].seen(view), (view, self._expected[view.id])
            assert view.retry_count <= MAX_RETRIES

    @invariant()
    def no_unique_key_is_held_twice(self) -> None:
        keys = [one.new.unique_key for one in self._expected.values() if one.state not in FINAL]
        taken = [key for key in keys if key is not None]
        assert len(taken) == len(set(taken))

    @invariant()
    def events_have_no_gaps(self) -> None:
        for job_id in self._touched & self._expected.keys():
            events = self._await(self._world.progress.since(job_id, 0))
            assert [(one.number, one.event.step) for one in events] == list(
                enumerate(self._expected[job_id].steps, 1)
            )
        self._touched.clear()

    # The model

    @property
    def _now(self) -> datetime:
        return self._world.clock.now()

    def _chosen(self, choice: int, among: list[Expected]) -> Expected:
        return among[choice % len(among)]

    def _in(self, state: JobState) -> list[Expected]:
        return [one for one in self._expected.values() if one.state is state]

    def _holds(self, job: Job) -> bool:
        return job.id in self._expected and self._expected[job.id].held_by(job)

    def _holders(self) -> list[Job]:
        return [self._claimed[one.token] for one in self._in(JobState.PROCESSING) if one.token is not None]

    def _answer_early(self, expected: Expected, key: str, text: str) -> None:
        self._await(self._world.jobs.answer(expected.id, text, by="key_2", key=key))
        expected.answers[key] = Answer(text=text, by="key_2", at=self._now)
        expected.early.add(key)

    def _open_with(self, unique_key: str | None) -> JobId | None:
        for one in self._expected.values():
            if unique_key is not None and one.new.unique_key == unique_key and one.state not in FINAL:
                return one.id
        return None

    def _of(self, queues: Sequence[str]) -> list[Expected]:
        return [one for one in self._expected.values() if one.new.queue in queues]

    def _claimable(self, queues: Sequence[str]) -> list[Expected]:
        return [
            one for one in self._of(queues) if one.claimable(self._now) and one.new.queue not in self._stopped
        ]

    def _overdue(self, queues: Sequence[str]) -> list[Expected]:
        return [one for one in self._of(queues) if one.overdue(self._now)]

    def _enqueue(self, new: Sequence[NewJob]) -> None:
        enqueued = self._await(self._world.jobs.enqueue(new))
        for job, answer in zip(new, enqueued, strict=True):
            same = self._open_with(job.unique_key)
            assert answer == Enqueued(job_id=same or job.id, duplicate=same is not None)
            if same is None:
                self._expected[job.id] = Expected(
                    new=job, run_at=job.run_at or self._now, created_at=self._now
                )

    def _resume(self, queue: str) -> None:
        self._await(self._world.jobs.resume_queue(queue))
        self._stopped.discard(queue)

    def _claim(self, queues: Sequence[str], limit: int, lease: timedelta) -> Sequence[Job]:
        """One worker's claim while nobody else claims."""
        now, claimable = self._now, self._claimable(queues)
        overdue = {one.id for one in self._overdue(queues)}
        claim = self._await(self._world.jobs.claim(queues, limit=limit, lease=lease))
        taken = {job.id for job in claim.jobs}
        assert claim.now == now
        assert len(taken) == len(claim.jobs) <= limit
        assert taken <= {one.id for one in claimable} | overdue
        if len(taken) < limit:
            assert taken >= {one.id for one in claimable}
        self._in_order(queues, taken, claimable)
        self._defaults_taken(queues, now)
        if not claim.more:
            assert not self._overdue(queues)
            assert taken == {one.id for one in self._claimable(queues)}
        self._next_due(queues, claim)
        self._taken(claim.jobs, lease)
        return claim.jobs

    def _in_order(self, queues: Sequence[str], taken: set[JobId], claimable: Sequence[Expected]) -> None:
        for queue in queues:
            waited = [
                one.id
                for one in sorted(claimable, key=lambda one: (one.new.priority, one.run_at, one.id))
                if one.new.queue == queue and one.state is JobState.PENDING
            ]
            chosen = taken.intersection(waited)
            assert chosen == set(waited[: len(chosen)])

    def _defaults_taken(self, queues: Sequence[str], now: datetime) -> None:
        """A claim that was filled may have left questions for the next one."""
        for one in self._overdue(queues):
            view = self._await(self._world.job_history.get(one.id))
            if view.question is None:
                assert one.question is not None
                assert one.question.default is not None
                one.answered(Answer(text=one.question.default, by=BY_DEFAULT, at=now))

    def _next_due(self, queues: Sequence[str], claim: ClaimedJobs) -> None:
        if claim.jobs or claim.more:
            assert claim.next_due is None
            return
        changes = [one.next_change() for one in self._of(queues) if one.new.queue not in self._stopped]
        waits = [at - self._now for at in changes if at is not None and at > self._now]
        assert claim.next_due == min(waits, default=None)

    def _taken(self, jobs: Sequence[Job], lease: timedelta) -> None:
        given_up = list[tuple[Job, Settlement]]()
        for job in jobs:
            assert job.lease.token not in self._claimed
            self._claimed[job.lease.token] = job
            self._expected[job.id].claimed(job, self._now, lease)
            end = lost_for_good(job)
            if end is not None:
                assert job.lost_in_a_row == MAX_LOST_IN_A_ROW
                given_up.append((job, end))
        if given_up:
            self._report(given_up)

    def _report(self, reports: Sequence[tuple[Job, Settlement]]) -> None:
        verdicts = list[JobVerdict]()
        for job, settlement in reports:
            verdicts.append(self._verdict(job))
            if verdicts[-1] is JobVerdict.SETTLED:
                self._expected[job.id].end(settlement, self._now)
            self._touched.add(job.id)
        settled = [
            SettledJob(lease=job.lease, settlement=settlement, event=_event_of(job, settlement))
            for job, settlement in reports
        ]
        assert list(self._await(self._world.jobs.settle(settled))) == verdicts

    def _verdict(self, job: Job) -> JobVerdict:
        expected = self._expected.get(job.id)
        if expected is None or expected.token != job.lease.token:
            return JobVerdict.LOST
        return JobVerdict.SETTLED if expected.held_by(job) else JobVerdict.REPEATED

    def _await(self, awaitable: Awaitable[_Result]) -> _Result:
        return self._loop.run_until_complete(_awaited(awaitable))


def _event_of(job: Job, settlement: Settlement) -> ProgressEvent | None:
    if not isinstance(settlement, Paused):
        return None
    return ProgressEvent(job_id=job.id, step="ask", status=StepStatus.PAUSED)


async def _awaited(awaitable: Awaitable[_Result]) -> _Result:
    return await awaitable


async def _all(awaitables: Sequence[Awaitable[_Result]]) -> Sequence[_Result]:
    return await asyncio.gather(*awaitables)
