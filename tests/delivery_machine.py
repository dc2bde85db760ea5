"""Everything that may happen to deliveries, in any order, held against a model of what the queue promises."""

import asyncio
from abc import abstractmethod
from collections import Counter, defaultdict
from collections.abc import Awaitable, Mapping, Sequence
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

from hymical.application.destinations import ChangeDestination, DeleteDestination
from hymical.application.forms import EraseSubmission
from hymical.domain.deliveries import (
    FOR_GOOD,
    WITHDRAWALS,
    DeliveryState,
    Failed,
    Later,
    Reason,
    Settlement,
    settle,
)
from hymical.domain.destinations import Destination, DestinationChange, DestinationState, Trouble
from hymical.domain.errors import NotFound, NotReplayable, NotResendable
from hymical.domain.ids import DeliveryId, DestinationId, LeaseToken, SubmissionId
from hymical.domain.leases import Lease
from hymical.domain.outcomes import (
    Accepted,
    AttemptOutcome,
    Blocked,
    Gone,
    LeaseLost,
    Outcome,
    OwnFault,
    Refused,
    Rejected,
    TimedOut,
    Unreachable,
    recorded_outcome,
)
from hymical.domain.retries import RetryPolicy
from hymical.ports.deliveries import ClaimedDelivery, DeliveryFilter, DeliveryView, Settled, Verdict
from tests.builders import LEASE, an_attempt, ids
from tests.worlds import World

_Result = TypeVar("_Result")

# short of patience, so that every end is reached within few steps
POLICY = RetryPolicy(waits=(timedelta(seconds=5),), max_lost_in_a_row=3)
ALLOWANCE = len(POLICY.waits) + 1
EVERYTHING = 10_000
OPEN = (DeliveryState.PENDING, DeliveryState.PROCESSING)
MOST_DESTINATIONS = 4
AT_ONCE = timedelta(0)
CHOICE = st.integers(0, EVERYTHING)
CAPACITY = st.integers(1, 3)
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
class Lane:
    """What one destination must look like. `as_made` is how a post that was on its way may still know it."""

    as_made: Destination
    capacity: int
    state: DestinationState = DestinationState.ACTIVE
    deleted: bool = False
    trouble: Trouble | None = None

    @property
    def id(self) -> DestinationId:
        return self.as_made.id

    @property
    def gone(self) -> Reason | None:
        """Why what is owed to it cannot be sent, if it cannot."""
        if self.deleted:
            return Reason.DESTINATION_DELETED
        return Reason.DESTINATION_DISABLED if self.state is DestinationState.DISABLED else None

    def may_have(self, now: datetime) -> int:
        """How many may be in flight to it."""
        if self.deleted or self.state is not DestinationState.ACTIVE:
            return 0
        if self.trouble is None or not self.trouble.openings:
            return self.capacity
        held_until = self.trouble.held_until
        return 0 if held_until is not None and now < held_until else 1


@dataclass(slots=True, kw_only=True)
class Expected:
    """What one delivery must look like."""

    id: DeliveryId
    destination_id: DestinationId
    submission_id: SubmissionId
    state: DeliveryState = DeliveryState.PENDING
    due_at: datetime | None
    completed_at: datetime | None = None
    reason: Reason | None = None
    token: LeaseToken | None = None
    claims: int = 0
    spent: int = 0
    lost_in_a_row: int = 0
    attempts: dict[int, tuple[AttemptOutcome, bool]] = field(default_factory=dict)

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

    def reported(self, settled: Settled) -> Verdict:
        """What whoever reports must be told; the attempt is kept in any case."""
        number = settled.lease.number
        recorded = self.attempts.get(number)
        known = recorded is not None and recorded != (AttemptOutcome.LEASE_LOST, False)
        if settled.attempt is not None and not known:
            self.attempts[number] = (settled.attempt.outcome, recorded is not None)
        if self.token == settled.lease.token:
            return Verdict.SETTLED
        if known:
            return Verdict.REPEATED
        return Verdict.WITHDRAWN if self.reason in WITHDRAWALS else Verdict.OVERTAKEN

    def seen(self, view: DeliveryView) -> bool:
        waits = self.state is DeliveryState.PENDING
        return (
            view.destination_id,
            view.submission_id,
            view.state,
            view.attempt_count,
            view.cycle_attempt_count,
            view.next_attempt_at,
            view.completed_at,
            view.failure_reason,
        ) == (
            self.destination_id,
            self.submission_id,
            self.state,
            self.claims,
            self.spent,
            self.due_at if waits else None,
            self.completed_at,
            self.reason,
        )


class AnyTarget:
    async def check(self, url: str) -> None:
        """Every address may be called."""


class DeliveryMachine(RuleBasedStateMachine):
    """Workers claim, report, report late or twice, hand back, and are never heard of again.

    Meanwhile people pause, resume, disable and delete destinations, erase submissions, replay and resend.
    A lease that was given out stays in `leases` for good, whoever holds the delivery by now: reporting on any
    of them at any time is what slow, stalled and resurrected workers do.
    """

    leases: Bundle[ClaimedDelivery] = Bundle("leases")

    repeats_claims_at_once = True
    """Whether claims at the same time share out in the same way each time; a run must be repeatable."""

    @abstractmethod
    def opened(self) -> AbstractAsyncContextManager[World]:
        """An empty world."""

    def __init__(self) -> None:
        super().__init__()
        self._loop = asyncio.new_event_loop()
        self._open = AsyncExitStack()
        self._world = world = self._await(self._open.enter_async_context(self.opened()))
        self._change = ChangeDestination(
            destinations=world.destinations,
            queue=world.queue,
            targets=AnyTarget(),
            transactions=world.transactions,
        )
        self._delete = DeleteDestination(
            destinations=world.destinations, queue=world.queue, transactions=world.transactions
        )
        self._erase = EraseSubmission(
            submissions=world.submissions,
            queue=world.queue,
            exports=world.exports,
            transactions=world.transactions,
        )
        self._expected: dict[DeliveryId, Expected] = {}
        self._claimed: dict[LeaseToken, ClaimedDelivery] = {}
        self._answered: list[Lease] = []
        self._lanes: dict[DestinationId, Lane] = {}
        self._erased: set[SubmissionId] = set()
        self._touched: set[DeliveryId] = set()
        self._passed_over = Counter[DestinationId]()
        for capacity in (2, 1, 3):
            self._a_destination(capacity)
        for lane in self._there():
            self._owed(lane, lane.as_made, 4)

    def teardown(self) -> None:
        self._await(self._open.aclose())
        self._loop.close()

    # What posts and people do

    @rule(count=st.integers(1, 3), choice=CHOICE)
    def posts_arrive(self, count: int, choice: int) -> None:
        lane = self._chosen_lane(choice)
        destination = self._await(self._world.destinations.get(lane.id))
        assert (destination.state, destination.max_in_flight) == (lane.state, lane.capacity)
        self._owed(lane, destination, count)

    @precondition(lambda self: any(lane.gone for lane in self._lanes.values()))
    @rule(choice=CHOICE)
    def a_post_is_stored_for_a_destination_that_has_just_gone(self, choice: int) -> None:
        gone = [lane for lane in self._lanes.values() if lane.gone]
        lane = gone[choice % len(gone)]
        self._owed(lane, lane.as_made, 1)

    @precondition(lambda self: len(self._there()) < MOST_DESTINATIONS)
    @rule(capacity=CAPACITY)
    def a_destination_is_added(self, capacity: int) -> None:
        self._a_destination(capacity)

    @rule(
        choice=CHOICE,
        state=st.sampled_from([None, *DestinationState, DestinationState.ACTIVE]),
        capacity=st.one_of(st.none(), CAPACITY),
    )
    def a_destination_is_changed(
        self, choice: int, state: DestinationState | None, capacity: int | None
    ) -> None:
        self._changed(self._chosen_lane(choice), DestinationChange(state=state, max_in_flight=capacity))

    @rule(target=leases, choice=CHOICE)
    def a_destination_is_paused(self, choice: int) -> MultipleResults[ClaimedDelivery]:
        self._changed(self._chosen_lane(choice), DestinationChange(state=DestinationState.PAUSED))
        return multiple(*self._claim(EVERYTHING, LEASE))

    @precondition(lambda self: len(self._there()) > 1)
    @rule(choice=CHOICE)
    def a_destination_is_deleted(self, choice: int) -> None:
        lane = self._chosen_lane(choice)
        self._await(self._delete(lane.id))
        lane.deleted, lane.trouble = True, None
        self._withdrawn(Reason.DESTINATION_DELETED, self._open_of(lane))
        with pytest.raises(NotFound):
            self._await(self._world.destinations.get(lane.id))

    @rule(
        target=leases,
        choice=CHOICE,
        openings=st.sampled_from([1, 2, 0]),
        hold=st.sampled_from([timedelta(hours=1), timedelta(seconds=10), AT_ONCE]),
    )
    def a_destination_is_found_in_trouble(
        self, choice: int, openings: int, hold: timedelta
    ) -> MultipleResults[ClaimedDelivery]:
        lane = self._chosen_lane(choice)
        lane.trouble = Trouble(
            failing_since=self._now,
            failures_in_a_row=5 * openings + 1,
            openings=openings,
            held_until=self._now + hold if openings else None,
        )
        self._await(self._world.health.save({lane.id: lane.trouble}))
        return multiple(*self._claim(EVERYTHING, LEASE))

    @rule(choice=CHOICE)
    def a_destination_is_found_well(self, choice: int) -> None:
        lane = self._chosen_lane(choice)
        lane.trouble = None
        self._await(self._world.health.save({lane.id: None}))

    @precondition(lambda self: bool(self._expected))
    @rule(choice=CHOICE)
    def a_submission_is_erased(self, choice: int) -> None:
        submission_id = self._chosen(choice, list(self._expected.values())).submission_id
        if submission_id in self._erased:
            with pytest.raises(NotFound):
                self._await(self._erase(submission_id))
            return
        self._await(self._erase(submission_id))
        self._erased.add(submission_id)
        of_it = [one for one in self._expected.values() if one.submission_id == submission_id]
        self._withdrawn(Reason.SUBMISSION_DELETED, [one for one in of_it if one.state in OPEN])
        self._touched |= {one.id for one in of_it}

    @precondition(lambda self: bool(self._in(DeliveryState.FAILED)))
    @rule(choice=CHOICE)
    def somebody_replays_what_failed(self, choice: int) -> None:
        expected = self._chosen(choice, self._in(DeliveryState.FAILED))
        hindrance = self._hindrance(expected)
        if hindrance is not None:
            with pytest.raises(NotReplayable) as refusal:
                self._await(self._world.queue.replay(expected.id))
            assert (refusal.value.state, refusal.value.reason) == (DeliveryState.FAILED, hindrance)
            return
        self._await(self._world.queue.replay(expected.id))
        expected.state, expected.due_at = DeliveryState.PENDING, self._now
        expected.completed_at, expected.reason, expected.spent = None, None, 0

    @precondition(lambda self: bool(self._in(*OPEN, DeliveryState.DELIVERED)))
    @rule(choice=CHOICE)
    def somebody_replays_what_did_not(self, choice: int) -> None:
        expected = self._chosen(choice, self._in(*OPEN, DeliveryState.DELIVERED))
        with pytest.raises(NotReplayable) as refusal:
            self._await(self._world.queue.replay(expected.id))
        assert (refusal.value.delivery_id, refusal.value.state) == (expected.id, expected.state)
        assert refusal.value.reason is None

    @precondition(lambda self: bool(self._expected))
    @rule(choice=CHOICE)
    def somebody_resends(self, choice: int) -> None:
        earlier, new_id = self._chosen(choice, list(self._expected.values())), ids.delivery()
        if self._lanes[earlier.destination_id].gone or earlier.submission_id in self._erased:
            with pytest.raises(NotResendable):
                self._await(self._world.queue.resend(earlier.id, new_id))
            return
        self._await(self._world.queue.resend(earlier.id, new_id))
        self._expected[new_id] = Expected(
            id=new_id,
            destination_id=earlier.destination_id,
            submission_id=earlier.submission_id,
            due_at=self._now,
        )

    # What time and workers do

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
        return multiple(*self._claim(limit, lease))

    @precondition(lambda self: bool(self._held()))
    @rule(target=leases, choice=CHOICE, count=st.integers(1, 3), limit=st.integers(1, 4))
    def a_worker_claims_what_answers_have_made_room_for(
        self, choice: int, count: int, limit: int
    ) -> MultipleResults[ClaimedDelivery]:
        """Answers stay what they are, whether they are settled, late, or their leases lost by now."""
        held = self._held()
        self._answered += [held[(choice + nth) % len(held)].lease for nth in range(count)]
        return multiple(*self._claim(limit, LEASE, self._answered))

    @precondition(lambda self: self.repeats_claims_at_once)
    @rule(target=leases, limits=st.lists(st.integers(1, 3), min_size=2, max_size=3))
    def workers_claim_at_the_same_time(self, limits: list[int]) -> MultipleResults[ClaimedDelivery]:
        claimable = {one.id for due in self._claimable().values() for one in due}
        due = {one.id for one in self._due()}
        claims = [self._world.queue.claim(limit=limit, lease=LEASE) for limit in limits]
        batches = self._await(_all(claims))
        claimed = [one for batch in batches for one in batch.deliveries]
        taken = [one.delivery.id for one in claimed]
        assert len(set(taken)) == len(taken)
        assert set(taken) <= due
        stranded = {gone for batch in batches for gone in batch.stranded}
        assert taken or stranded or not claimable
        self._passed_over.clear()
        self._taken(claimed, LEASE)
        self._strand(stranded)
        return multiple(*claimed)

    @precondition(lambda self: bool(self._claimable()))
    @rule(target=leases, times=st.integers(1, 5))
    def workers_crash_one_after_the_other(self, times: int) -> MultipleResults[ClaimedDelivery]:
        """A message that kills whoever takes it: each claim is forgotten, and its lease ends."""
        forgotten: list[ClaimedDelivery] = []
        for _ in range(times):
            forgotten += self._claim(1, AT_ONCE)
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
            waiting = {
                one.id
                for lane in self._lanes.values()
                for one in sorted(self._open_of(lane), key=_by_due_time)[: lane.may_have(self._now)]
            }
            claimed = self._claim(EVERYTHING, LEASE)
            assert {one.delivery.id for one in claimed} == waiting
            if outcome is not None:
                self._report([_report(one, outcome, 0.5) for one in self._held()])
            taken += claimed
        return multiple(*taken)

    @rule(target=leases, limit=st.integers(1, 4))
    def in_the_end_all_receivers_recover(self, limit: int) -> MultipleResults[ClaimedDelivery]:
        """Whatever happened before, everything open ends: delivered, unless nobody wants it any more."""
        for lane in self._there():
            if lane.state is DestinationState.PAUSED:
                self._changed(lane, DestinationChange(state=DestinationState.ACTIVE))
        self._world.clock.move(timedelta(days=2))
        still_open, taken = self._in(*OPEN), list[ClaimedDelivery]()
        for _ in range(len(still_open) + len(self._lanes)):
            claimed = self._claim(limit, LEASE)
            self._report(
                [
                    _report(one, Accepted(), 0.5)
                    for one in claimed
                    if self._expected[one.delivery.id].token == one.lease.token
                ]
            )
            taken += claimed
        assert not self._in(*OPEN)
        for one in still_open:
            gone = self._lanes[one.destination_id].gone
            assert one.reason == gone if gone else one.reason in {None, Reason.WORKER_LOST}
        return multiple(*taken)

    # What must hold

    @invariant()
    def every_delivery_is_what_the_model_says(self) -> None:
        """What was withdrawn, delivered or failed never changes again but by a replay."""
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
        assert {attempt.number: (attempt.outcome, attempt.late) for attempt in attempts} == expected.attempts
        for attempt in attempts:
            silent = expected.submission_id in self._erased or attempt.outcome is AttemptOutcome.LEASE_LOST
            assert (attempt.response_excerpt is None) == silent

    # The model

    @property
    def _now(self) -> datetime:
        return self._world.clock.now()

    def _a_destination(self, capacity: int) -> None:
        made = self._await(self._world.destination(max_in_flight=capacity))
        self._lanes[made.id] = Lane(as_made=made, capacity=capacity)

    def _there(self) -> list[Lane]:
        return [lane for lane in self._lanes.values() if not lane.deleted]

    def _chosen_lane(self, choice: int) -> Lane:
        # mostly one that is owed something, where it matters what happens to it
        there = self._there()
        owed = [lane for lane in there if self._open_of(lane)]
        among = owed if owed and choice % 4 else there
        return among[choice % len(among)]

    def _chosen(self, choice: int, among: list[Expected]) -> Expected:
        return among[choice % len(among)]

    def _in(self, *states: DeliveryState) -> list[Expected]:
        return [one for one in self._expected.values() if one.state in states]

    def _open_of(self, lane: Lane) -> list[Expected]:
        return [one for one in self._in(*OPEN) if one.destination_id == lane.id]

    def _held(self) -> list[ClaimedDelivery]:
        """What is in somebody's hands."""
        return [self._claimed[one.token] for one in self._expected.values() if one.token is not None]

    def _due(self) -> list[Expected]:
        due = [one for one in self._expected.values() if one.due_at is not None and one.due_at <= self._now]
        return sorted(due, key=_by_due_time)

    def _in_flight(self, lane: Lane, making_room: Sequence[Lease]) -> int:
        is_tried_out = lane.trouble is not None and lane.trouble.openings
        makes_room = set() if is_tried_out else {lease.token for lease in making_room}
        return sum(
            one.token is not None
            and one.token not in makes_room
            and one.due_at is not None
            and one.due_at > self._now
            for one in self._open_of(lane)
        )

    def _claimable(self, making_room: Sequence[Lease] = ()) -> Mapping[DestinationId, Sequence[Expected]]:
        """What there is room for, by destination, those that waited longest first."""
        due = defaultdict[DestinationId, list[Expected]](list)
        for one in self._due():
            due[one.destination_id].append(one)
        rooms = {
            lane_id: self._lanes[lane_id].may_have(self._now)
            - self._in_flight(self._lanes[lane_id], making_room)
            for lane_id in due
        }
        return {lane_id: due[lane_id][:room] for lane_id, room in rooms.items() if room > 0}

    def _hindrance(self, expected: Expected) -> Reason | None:
        """Why a failed delivery cannot be replayed, if it cannot."""
        if expected.reason in FOR_GOOD:
            return expected.reason
        if expected.submission_id in self._erased:
            return Reason.SUBMISSION_DELETED
        lane = self._lanes[expected.destination_id]
        if lane.deleted:
            return Reason.DESTINATION_DELETED
        return Reason.DESTINATION_DISABLED if lane.state is DestinationState.DISABLED else None

    def _owed(self, lane: Lane, destination: Destination, count: int) -> None:
        for owed in self._await(self._world.owes(count, destination)):
            submission_id = self._await(self._world.history.get(owed.id)).submission_id
            assert submission_id is not None
            expected = Expected(
                id=owed.id, destination_id=lane.id, submission_id=submission_id, due_at=self._now
            )
            if destination.state is DestinationState.DISABLED:
                expected.end(Failed(reason=Reason.DESTINATION_DISABLED), self._now, spends=False)
            self._expected[owed.id] = expected
            self._touched.add(owed.id)

    def _changed(self, lane: Lane, change: DestinationChange) -> None:
        self._await(self._change(lane.id, change))
        lane.state, lane.trouble = change.state or lane.state, None
        lane.capacity = change.max_in_flight or lane.capacity
        if change.state is DestinationState.DISABLED:
            self._withdrawn(Reason.DESTINATION_DISABLED, self._open_of(lane))

    def _withdrawn(self, reason: Reason, deliveries: Sequence[Expected]) -> None:
        for expected in deliveries:
            expected.end(Failed(reason=reason), self._now, spends=False)

    def _claim(
        self, limit: int, lease: timedelta, making_room: Sequence[Lease] = ()
    ) -> Sequence[ClaimedDelivery]:
        """One worker's claim while nobody else claims."""
        claimable = self._claimable(making_room)
        due = {one.destination_id for one in self._due()}
        batch = self._await(self._world.queue.claim(limit=limit, lease=lease, making_room=making_room))
        taken = defaultdict[DestinationId, set[DeliveryId]](set)
        for one in batch.deliveries:
            taken[one.destination.id].add(one.delivery.id)
        assert len(batch.deliveries) <= limit
        assert taken.keys() <= claimable.keys()
        assert taken or batch.stranded or not claimable
        for lane_id, chosen in taken.items():
            assert chosen == {one.id for one in claimable[lane_id][: len(chosen)]}
        gone = {lane_id for lane_id in due if self._lanes[lane_id].gone}
        if len(claimable) + len(gone) <= limit:
            assert taken.keys() == claimable.keys()
        if not batch.more:
            assert {lane_id: len(one) for lane_id, one in taken.items()} == {
                lane_id: len(one) for lane_id, one in claimable.items()
            }
            assert {lane_id for lane_id, _ in batch.stranded} == gone
        self._everyone_has_a_turn(claimable, taken)
        self._taken(batch.deliveries, lease, making_room)
        self._strand(set(batch.stranded))
        return batch.deliveries

    def _everyone_has_a_turn(
        self,
        claimable: Mapping[DestinationId, Sequence[Expected]],
        taken: Mapping[DestinationId, set[DeliveryId]],
    ) -> None:
        for lane_id in self._lanes:
            if lane_id in claimable and lane_id not in taken:
                self._passed_over[lane_id] += 1
            else:
                del self._passed_over[lane_id]
        assert all(times < len(self._lanes) for times in self._passed_over.values())

    def _strand(self, stranded: set[tuple[DestinationId, Reason]]) -> None:
        """Fails what was found to be owed to a destination that has gone."""
        for destination_id, reason in stranded:
            lane = self._lanes[destination_id]
            assert reason is lane.gone
            assert self._open_of(lane)
            self._await(self._world.queue.withdraw_from(destination_id, reason))
            self._withdrawn(reason, self._open_of(lane))

    def _taken(
        self, claimed: Sequence[ClaimedDelivery], lease: timedelta, making_room: Sequence[Lease] = ()
    ) -> None:
        given_up: list[tuple[Settled, bool]] = []
        for one in claimed:
            expected = self._expected[one.delivery.id]
            assert expected.due_at is not None
            # whoever held it before, if anyone did, holds it no longer
            assert expected.due_at <= self._now
            if one.lost:
                expected.attempts[expected.claims] = (AttemptOutcome.LEASE_LOST, False)
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
            # what was erased is never sent, not even as an empty body
            assert (one.message.submission_id, bool(one.message.body)) == (expected.submission_id, True)
            self._touched.add(expected.id)
            verdict = settle(one.delivery, LeaseLost(), POLICY, 0.5) if one.lost else None
            if isinstance(verdict, Failed):
                assert expected.lost_in_a_row == POLICY.max_lost_in_a_row
                given_up.append((Settled(claimed=one, settlement=verdict, attempt=None), False))
        for lane in {one.destination.id: self._lanes[one.destination.id] for one in claimed}.values():
            assert self._in_flight(lane, making_room) <= lane.may_have(self._now)
            assert lane.may_have(self._now)
        if given_up:
            self._report(given_up)

    def _report(self, reports: Sequence[tuple[Settled, bool]]) -> None:
        verdicts = list[Verdict]()
        for settled, spends in reports:
            expected = self._expected[settled.lease.delivery_id]
            self._touched.add(expected.id)
            verdicts.append(expected.reported(settled))
            if verdicts[-1] is Verdict.SETTLED:
                expected.end(settled.settlement, self._now, spends=spends)
        report = self._await(self._world.queue.settle([settled for settled, _ in reports]))
        assert list(report.verdicts) == verdicts
        assert set(report.troubled) == {
            settled.claimed.destination.id
            for settled, _ in reports
            if self._lanes[settled.claimed.destination.id].trouble is not None
        }

    def _await(self, awaitable: Awaitable[_Result]) -> _Result:
        return self._loop.run_until_complete(_awaited(awaitable))


def _by_due_time(expected: Expected) -> tuple[datetime, DeliveryId]:
    assert expected.due_at is not None
    return expected.due_at, expected.id


def _report(claimed: ClaimedDelivery, outcome: Outcome, dice: float) -> tuple[Settled, bool]:
    """What its holder reports, and whether that spends the allowance."""
    settled = Settled(
        claimed=claimed,
        settlement=settle(claimed.delivery, outcome, POLICY, dice),
        attempt=an_attempt(claimed.lease.number, recorded_outcome(outcome)),
    )
    return settled, not isinstance(outcome, OwnFault)


async def _awaited(awaitable: Awaitable[_Result]) -> _Result:
    return await awaitable


async def _all(awaitables: Sequence[Awaitable[_Result]]) -> Sequence[_Result]:
    return await asyncio.gather(*awaitables)
