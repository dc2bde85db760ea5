"""Everything that may happen to deliveries, in any order, held against a model of what the queue promises."""

import asyncio
from abc import abstractmethod
from collections.abc import Awaitable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TypeVar

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

from hymical.domain.deliveries import (
    Accepted,
    AttemptOutcome,
    Blocked,
    DeliveryState,
    Failed,
    Gone,
    Later,
    LeaseLost,
    Outcome,
    OwnFault,
    Reason,
    Refused,
    Rejected,
    Settlement,
    TimedOut,
    Unreachable,
    recorded_outcome,
    settle,
)
from hymical.domain.destinations import DestinationState
from hymical.domain.errors import NotReplayable
from hymical.domain.ids import DeliveryId, DestinationId, LeaseToken
from hymical.domain.leases import Lease
from hymical.domain.retries import RetryPolicy
from hymical.ports.deliveries import ClaimedDelivery, DeliveryFilter, DeliveryView, Settled
from tests.builders import LEASE, an_attempt
from tests.worlds import World

_Result = TypeVar("_Result")

# short of patience, so that every end is reached within few steps
POLICY = RetryPolicy(waits=(timedelta(seconds=5),), max_lost_in_a_row=3)
ALLOWANCE = len(POLICY.waits) + 1
EVERYTHING = 10_000
OPEN = (DeliveryState.PENDING, DeliveryState.PROCESSING)
AT_ONCE = timedelta(0)
DICE = st.sampled_from([0.0, 0.5, 0.999])
RETRIED: tuple[Outcome, ...] = (
    Refused(),
    Refused(retry_after=timedelta(hours=1)),
    TimedOut(),
    Unreachable(),
    OwnFault(),
)
FINAL: tuple[Outcome, ...] = (Accepted(), Rejected(), Gone(), Blocked())
OUTCOMES = st.one_of(st.sampled_from(RETRIED), st.sampled_from(FINAL))


@dataclass(slots=True, kw_only=True)
class Expected:
    """What one delivery must look like."""

    id: DeliveryId
    destination_id: DestinationId
    state: DeliveryState = DeliveryState.PENDING
    due_at: datetime | None
    completed_at: datetime | None = None
    reason: Reason | None = None
    token: LeaseToken | None = None
    claims: int = 0
    spent: int = 0
    lost_in_a_row: int = 0
    attempts: dict[int, AttemptOutcome] = field(default_factory=dict)

    def end(self, settlement: Settlement, now: datetime, *, spends: bool) -> None:
        self.token = None
        self.lost_in_a_row = 0
        self.spent += spends
        if isinstance(settlement, Later):
            self.state, self.due_at = DeliveryState.PENDING, now + settlement.delay
            return
        self.due_at, self.completed_at = None, now
        if isinstance(settlement, Failed):
            self.state, self.reason = DeliveryState.FAILED, settlement.reason
        else:
            self.state = DeliveryState.DELIVERED

    def seen(self, view: DeliveryView) -> bool:
        waits = self.state is DeliveryState.PENDING
        return (
            view.state,
            view.attempt_count,
            view.cycle_attempt_count,
            view.next_attempt_at,
            view.completed_at,
            view.failure_reason,
        ) == (
            self.state,
            self.claims,
            self.spent,
            self.due_at if waits else None,
            self.completed_at,
            self.reason,
        )


class DeliveryMachine(RuleBasedStateMachine):
    """Workers claim, report, report late or twice, hand back, and are never heard of again.

    A lease that was given out stays in `leases` for good, whoever holds the delivery by now: reporting on any
    of them at any time is what slow, stalled and resurrected workers do.
    """

    leases: Bundle[ClaimedDelivery] = Bundle("leases")

    @abstractmethod
    def opened(self) -> AbstractAsyncContextManager[World]:
        """An empty world."""

    def __init__(self) -> None:
        super().__init__()
        self._loop = asyncio.new_event_loop()
        self._open = AsyncExitStack()
        self._world = self._await(self._open.enter_async_context(self.opened()))
        self._expected: dict[DeliveryId, Expected] = {}
        self._claimed: dict[LeaseToken, ClaimedDelivery] = {}
        self._destination = self._await(self._world.destination()).id
        self._disabled: set[DestinationId] = set()
        self._touched: set[DeliveryId] = set()

    def teardown(self) -> None:
        self._await(self._open.aclose())
        self._loop.close()

    # What may happen

    @rule(count=st.integers(1, 3))
    def posts_arrive(self, count: int) -> None:
        destination = self._await(self._world.destinations.get(self._destination))
        disabled = self._destination in self._disabled
        assert destination.state is (DestinationState.DISABLED if disabled else DestinationState.ACTIVE)
        for owed in self._await(self._world.owes(count, destination)):
            expected = Expected(id=owed.id, destination_id=self._destination, due_at=self._now)
            if disabled:
                expected.end(Failed(reason=Reason.DESTINATION_DISABLED), self._now, spends=False)
            self._expected[owed.id] = expected
            self._touched.add(owed.id)

    @precondition(lambda self: self._destination in self._disabled)
    @rule()
    def another_destination_is_added(self) -> None:
        self._destination = self._await(self._world.destination()).id

    @rule(
        step=st.sampled_from(
            [
                timedelta(microseconds=1),
                timedelta(seconds=5),
                LEASE - timedelta(microseconds=1),
                LEASE,
                timedelta(hours=2),
            ]
        )
    )
    def time_passes(self, step: timedelta) -> None:
        self._world.clock.move(step)

    @rule(target=leases, limit=st.integers(1, 4), lease=st.sampled_from([LEASE, AT_ONCE]))
    def a_worker_claims(self, limit: int, lease: timedelta) -> MultipleResults[ClaimedDelivery]:
        due = self._due()
        claimed = self._await(self._world.queue.claim(limit=limit, lease=lease))
        assert {one.delivery.id for one in claimed} == {one.id for one in due[:limit]}
        return self._taken(claimed, lease)

    @rule(target=leases, limits=st.lists(st.integers(1, 3), min_size=2, max_size=3))
    def workers_claim_at_the_same_time(self, limits: list[int]) -> MultipleResults[ClaimedDelivery]:
        due = {one.id for one in self._due()}
        claims = [self._world.queue.claim(limit=limit, lease=LEASE) for limit in limits]
        claimed = [one for claim in self._await(_all(claims)) for one in claim]
        taken = [one.delivery.id for one in claimed]
        assert len(set(taken)) == len(taken)
        assert set(taken) <= due
        assert taken or not due
        return self._taken(claimed, LEASE)

    @precondition(lambda self: bool(self._due()))
    @rule(target=leases, times=st.integers(1, 5))
    def workers_crash_one_after_the_other(self, times: int) -> MultipleResults[ClaimedDelivery]:
        """A message that kills whoever takes it: each claim is forgotten, and its lease ends."""
        forgotten: list[ClaimedDelivery] = []
        for _ in range(times):
            claimed = self._await(self._world.queue.claim(limit=1, lease=AT_ONCE))
            self._taken(claimed, AT_ONCE)
            forgotten += claimed
        return multiple(*forgotten)

    @precondition(lambda self: bool(self._held()))
    @rule(outcomes=st.lists(OUTCOMES, min_size=1, max_size=4), dice=DICE)
    def the_holders_report(self, outcomes: list[Outcome], dice: float) -> None:
        # one more outcome than there are leases is nobody's
        self._report([_report(claimed, outcome, dice) for claimed, outcome in zip(self._held(), outcomes)])  # noqa: B905

    @precondition(lambda self: bool(self._claimed))
    @rule(
        reports=st.lists(
            st.tuples(leases, OUTCOMES, DICE),
            min_size=1,
            max_size=4,
            unique_by=lambda report: report[0].lease.token,
        )
    )
    def anyone_reports(self, reports: list[tuple[ClaimedDelivery, Outcome, float]]) -> None:
        self._report([_report(*report) for report in reports])

    @precondition(lambda self: bool(self._claimed))
    @rule(
        unsent=st.lists(leases, min_size=1, max_size=3, unique_by=lambda claimed: claimed.lease.token),
    )
    def a_worker_hands_back(self, unsent: list[ClaimedDelivery]) -> None:
        self._await(self._world.queue.release([claimed.lease for claimed in unsent]))
        for claimed in unsent:
            expected = self._expected[claimed.delivery.id]
            if expected.token == claimed.lease.token:
                expected.token, expected.state, expected.due_at = None, DeliveryState.PENDING, self._now
            self._touched.add(expected.id)

    @precondition(lambda self: bool(self._in(DeliveryState.FAILED)))
    @rule(choice=st.integers(0, EVERYTHING))
    def somebody_replays_what_failed(self, choice: int) -> None:
        failed = self._in(DeliveryState.FAILED)
        expected = failed[choice % len(failed)]
        self._await(self._world.queue.replay(expected.id))
        expected.state, expected.due_at = DeliveryState.PENDING, self._now
        expected.completed_at, expected.reason, expected.spent = None, None, 0

    @precondition(lambda self: bool(self._in(*OPEN, DeliveryState.DELIVERED)))
    @rule(choice=st.integers(0, EVERYTHING))
    def somebody_replays_what_did_not(self, choice: int) -> None:
        others = self._in(*OPEN, DeliveryState.DELIVERED)
        expected = others[choice % len(others)]
        with pytest.raises(NotReplayable) as refusal:
            self._await(self._world.queue.replay(expected.id))
        assert (refusal.value.delivery_id, refusal.value.state) == (expected.id, expected.state)

    @rule(target=leases, outcomes=st.lists(st.one_of(st.none(), OUTCOMES), min_size=1, max_size=4))
    def all_that_is_open_is_tried_after_days(
        self, outcomes: list[Outcome | None]
    ) -> MultipleResults[ClaimedDelivery]:
        """Nothing is lost: what has not ended can be taken by somebody, whatever happened to it.

        Without an outcome, whoever took it is not heard of again.
        """
        taken: list[ClaimedDelivery] = []
        for outcome in outcomes:
            self._world.clock.move(timedelta(days=2))
            still_open = {one.id for one in self._in(*OPEN)}
            claimed = self._await(self._world.queue.claim(limit=EVERYTHING, lease=LEASE))
            assert {one.delivery.id for one in claimed} == still_open
            self._taken(claimed, LEASE)
            if outcome is not None:
                self._report([_report(one, outcome, 0.5) for one in self._held()])
            taken += claimed
        return multiple(*taken)

    # What must hold

    @invariant()
    def every_delivery_is_what_the_model_says(self) -> None:
        views = self._await(self._world.history.page(DeliveryFilter(), before=None, limit=EVERYTHING))
        assert [view.id for view in views] == sorted(self._expected, reverse=True)
        for view in views:
            expected = self._expected[view.id]
            assert expected.seen(view), (view, expected)
            assert view.cycle_attempt_count <= ALLOWANCE

    @invariant()
    def no_number_is_used_twice(self) -> None:
        for delivery_id in self._touched:
            self._history_is_as_expected(delivery_id)
        self._touched.clear()

    def _history_is_as_expected(self, delivery_id: DeliveryId) -> None:
        expected = self._expected[delivery_id]
        attempts = self._await(self._world.history.attempts(delivery_id))
        numbers = [attempt.number for attempt in attempts]
        assert numbers == sorted(set(numbers))
        assert all(1 <= number <= expected.claims for number in numbers)
        assert {attempt.number: attempt.outcome for attempt in attempts} == expected.attempts

    # The model

    @property
    def _now(self) -> datetime:
        return self._world.clock.now()

    def _in(self, *states: DeliveryState) -> list[Expected]:
        return [one for one in self._expected.values() if one.state in states]

    def _held(self) -> list[ClaimedDelivery]:
        """What is in somebody's hands."""
        return [self._claimed[one.token] for one in self._expected.values() if one.token is not None]

    def _due(self) -> list[Expected]:
        due = [
            (one.due_at, one.id, one)
            for one in self._expected.values()
            if one.due_at is not None and one.due_at <= self._now
        ]
        return [one for _, _, one in sorted(due, key=lambda known: known[:2])]

    def _taken(
        self, claimed: Sequence[ClaimedDelivery], lease: timedelta
    ) -> MultipleResults[ClaimedDelivery]:
        given_up: list[tuple[Settled, bool]] = []
        for one in claimed:
            expected = self._expected[one.delivery.id]
            assert expected.due_at is not None
            # whoever held it before, if anyone did, holds it no longer
            assert expected.due_at <= self._now
            if one.lost:
                expected.attempts[expected.claims] = AttemptOutcome.LEASE_LOST
                expected.lost_in_a_row += 1
            assert one.lost == (expected.token is not None)
            assert one.lease.token not in self._claimed
            assert one.lease == Lease(
                delivery_id=expected.id, token=one.lease.token, number=expected.claims + 1, since=self._now
            )
            self._claimed[one.lease.token] = one
            expected.claims += 1
            expected.state, expected.token, expected.due_at = (
                DeliveryState.PROCESSING,
                one.lease.token,
                self._now + lease,
            )
            assert (one.delivery.lost_in_a_row, one.delivery.cycle_attempt_count) == (
                expected.lost_in_a_row,
                expected.spent,
            )
            assert (one.delivery.due_at, one.message.id) == (expected.due_at, one.delivery.message_id)
            self._touched.add(expected.id)
            verdict = settle(one.delivery, LeaseLost(), POLICY, 0.5) if one.lost else None
            if isinstance(verdict, Failed):
                assert expected.lost_in_a_row == POLICY.max_lost_in_a_row
                given_up.append((Settled(lease=one.lease, settlement=verdict, attempt=None), False))
        if given_up:
            self._report(given_up)
        return multiple(*claimed)

    def _report(self, reports: Sequence[tuple[Settled, bool]]) -> None:
        late = set[DeliveryId]()
        in_time = set[DeliveryId]()
        for settled, spends in reports:
            expected = self._expected[settled.lease.delivery_id]
            self._touched.add(expected.id)
            number, attempt = settled.lease.number, settled.attempt
            if attempt is not None and expected.attempts.get(number) in {None, AttemptOutcome.LEASE_LOST}:
                expected.attempts[number] = attempt.outcome
            if expected.token != settled.lease.token:
                late.add(expected.id)
                continue
            in_time.add(expected.id)
            expected.end(settled.settlement, self._now, spends=spends)
            if isinstance(settled.settlement, Failed) and settled.settlement.disables_destination:
                self._disabled.add(expected.destination_id)
        told = set(self._await(self._world.queue.settle([settled for settled, _ in reports])))
        # of a delivery that one report ends in time and another too late, either may be said
        assert late - in_time <= told <= late

    def _await(self, awaitable: Awaitable[_Result]) -> _Result:
        return self._loop.run_until_complete(_awaited(awaitable))


def _report(claimed: ClaimedDelivery, outcome: Outcome, dice: float) -> tuple[Settled, bool]:
    """What its holder reports, and whether that spends the allowance."""
    settled = Settled(
        lease=claimed.lease,
        settlement=settle(claimed.delivery, outcome, POLICY, dice),
        attempt=an_attempt(claimed.lease.number, recorded_outcome(outcome)),
    )
    return settled, not isinstance(outcome, OwnFault)


async def _awaited(awaitable: Awaitable[_Result]) -> _Result:
    return await awaitable


async def _all(awaitables: Sequence[Awaitable[_Result]]) -> Sequence[_Result]:
    return await asyncio.gather(*awaitables)
