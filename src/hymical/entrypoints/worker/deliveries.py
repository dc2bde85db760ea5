"""The loop that claims, sends and settles deliveries."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from itertools import islice

from hymical.application.deliveries import Claim, ClaimDue, ReleaseUnsent, SendDelivery, SettleFinished
from hymical.domain.errors import StorageUnavailable
from hymical.domain.ids import DestinationId, LeaseToken
from hymical.domain.leases import Lease
from hymical.entrypoints.worker.lanes import Lane
from hymical.entrypoints.worker.patience import Patience
from hymical.entrypoints.worker.settling import Settling
from hymical.ports.deliveries import ClaimedDelivery, Settled, Verdict
from hymical.ports.ids import Ids
from hymical.ports.wakeups import Bell, WakeUps

_log = logging.getLogger(__name__)
# of the event loop
_TURNS_TO_GATHER = 5
_SHORTEST_TURN, _LONGEST_TURN = 0.005, 0.32
_LONGEST_WAIT_SECONDS = 0.5
# on its way or not settled, as a multiple of the slots
_MOST_HELD = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How much one worker takes on; `drain` is how long requests in flight may take once it has to stop."""

    poll: timedelta
    batch_size: int
    concurrency: int
    drain: timedelta


class DeliveryWorker:
    """Claims what it has free slots for, sends concurrently, and settles whatever has finished.

    A slot is held by a request until it is answered. What finishes while a settlement is being written goes into the
    next one; where settlements stand still, no more is claimed than twice what there are slots for. What was
    accepted makes room at its destination before it is settled, and where answers come quickly the next are claimed
    ahead (`Lane`, docs/decisions/0018): what waits holds no slot, and is handed back if it cannot go on its way soon.
    """

    def __init__(
        self,
        *,
        claim_due: ClaimDue,
        send: SendDelivery,
        settle: SettleFinished,
        release: ReleaseUnsent,
        wakeups: WakeUps,
        ids: Ids,
        pace: Pace,
    ) -> None:
        self._claim_due = claim_due
        self._send = send
        self._release = release
        self._wakeups = wakeups
        self._ids = ids
        self._pace = pace
        self._patience = Patience(ids)
        self._settle = settle
        self._settling = Settling(
            self._settle_finished,
            patience=self._patience,
            name=lambda one: f"delivery {one.lease.delivery_id}",
            judged=self._judged,
            written=self._written,
        )
        # on their way, each in a slot; answered and not settled; claimed ahead, waiting
        self._slots = self._unsettled = self._waiting = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._lanes: dict[DestinationId, Lane] = {}
        # those that have places for what waits, and no slot for it was free
        self._short_of_slots: dict[DestinationId, Lane] = {}
        # what the last claim was told to leave out of its count
        self._making_room: set[LeaseToken] = set()
        # since the last claim began: whether the bell rang, and where something was accepted or settled and
        # too little waits
        self._rung = True
        self._changed: set[DestinationId] = set()
        # and what a settlement told of meanwhile, which the claim may not have seen
        self._shut: set[DestinationId] = set()
        self._more = False
        self._woken = asyncio.Event()
        self._turn = _SHORTEST_TURN

    @property
    def in_flight(self) -> int:
        return self._slots + self._unsettled

    @property
    def _free(self) -> int:
        """Slots for what is to begin. A crash sends again what is not settled, which is bounded too."""
        slots = self._pace.concurrency
        return min(slots - self._slots, _MOST_HELD * slots - self.in_flight)

    def stop(self) -> None:
        """Claims nothing more; `run` returns once what is in flight has ended, or `Pace.drain` has passed."""
        self._patience.end()
        self._woken.set()

    async def run(self) -> None:
        async with self._wakeups.deliveries() as bell, self._settling.open(), self._listening(bell):
            while not self._patience.is_over():
                if self._free > 0 and (self._more or self._rung or self._changed):
                    self._more = await self._claim_and_start()
                    continue
                self._woken.clear()
                await self._woken.wait()
                if self._free < self._pace.batch_size:
                    # one claim for the slots of those that end together
                    for _ in range(_TURNS_TO_GATHER):
                        await asyncio.sleep(0)
            await self._drain()

    @asynccontextmanager
    async def _listening(self, bell: Bell) -> AsyncIterator[None]:
        listening = asyncio.create_task(self._listen(bell))
        try:
            yield
        finally:
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)

    async def _listen(self, bell: Bell) -> None:
        while True:
            await bell.wait(self._pace.poll.total_seconds())
            self._rung = True
            self._woken.set()

    async def _claim_and_start(self) -> bool:
        """Whether more may be due than there was room for."""
        claim = await self._patience.persistently(self._claim, "claim", until_stopped=True)
        if claim is None:
            return False
        if self._patience.is_over():
            await self._hand_back([*claim.to_send, *(one.claimed for one in claim.given_up)])
            return False
        if claim.more and not claim.to_send and not claim.given_up:
            # another claims there, and may stand still: asking without a pause would only wear out the database
            await self._patience.until_any(asyncio.sleep(self._turn * (0.5 + self._ids.dice())))
            self._turn = min(self._turn * 2, _LONGEST_TURN)
            return True
        self._turn = _SHORTEST_TURN
        self._take(claim)
        return claim.more

    async def _claim(self) -> Claim:
        # one that holds enough for most of its slots has enough to do while it claims
        held = self.in_flight + self._waiting
        ahead = self._changed if 2 * held <= self._pace.concurrency else set()
        self._rung, self._changed, self._shut = False, set(), set()
        room: list[Lease] = []
        # where more is to be had elsewhere, nothing needs room
        for destination_id, lane in {} if self._more else self._lanes.items():
            room += lane.making_room(ahead=destination_id in ahead)
        self._making_room = {lease.token for lease in room}
        # slots may have been taken since by what waited
        return await self._claim_due(min(self._pace.batch_size, max(1, self._free)), room)

    def _take(self, claim: Claim) -> None:
        self._unsettled += len(claim.given_up)
        for one in claim.given_up:
            self._lane(one.claimed).end(one)
        self._settling.add(claim.given_up)
        self._waiting += len(claim.to_send)
        loop = asyncio.get_running_loop()
        of_each = defaultdict[DestinationId, list[ClaimedDelivery]](list)
        for claimed in claim.to_send:
            of_each[claimed.destination.id].append(claimed)
        for of_it in of_each.values():
            lane = self._lane(of_it[0])
            lane.add(
                of_it,
                claim.claimed_at,
                room=claim.rooms[lane.destination.id],
                in_place_of=self._making_room,
            )
            if lane.destination.id in self._shut:
                self._hand_back_waiting(lane)
            self._start(lane)
            self._forget_if_empty(lane)
            if not lane.is_short():
                self._changed.discard(lane.destination.id)
            if lane.waiting:
                loop.call_later(_LONGEST_WAIT_SECONDS, self._hand_back_overdue, lane, claim.claimed_at)

    def _lane(self, claimed: ClaimedDelivery) -> Lane:
        lane = self._lanes.get(claimed.destination.id)
        if lane is None:
            lane = self._lanes[claimed.destination.id] = Lane(claimed.destination)
        return lane

    def _forget_if_empty(self, lane: Lane) -> None:
        if lane.is_empty():
            del self._lanes[lane.destination.id]

    def _start(self, lane: Lane) -> None:
        for claimed, claimed_at in islice(lane.start(), max(0, self._free)):
            self._waiting -= 1
            self._slots += 1
            self._begin(self._deliver(claimed, claimed_at))
        if lane.has_to_start():
            self._short_of_slots[lane.destination.id] = lane

    def _start_those_short_of_slots(self) -> None:
        while self._short_of_slots and self._free > 0:
            # the one that has waited longest; where it needs more, it comes last
            self._start(self._short_of_slots.pop(next(iter(self._short_of_slots))))

    def _begin(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _deliver(self, claimed: ClaimedDelivery, claimed_at: float) -> None:
        ended = await self._send(claimed, claimed_at)
        self._slots -= 1
        self._unsettled += 1
        lane = self._lanes[claimed.destination.id]
        if lane.end(ended):
            if lane.waiting:
                self._start(lane)
            if lane.is_short():
                self._changed.add(claimed.destination.id)
                if not self._more:
                    # first, so that the claim is under way while the settlement is made up
                    self._woken.set()
        self._settling.add([ended])
        if self._more and self._free >= min(self._pace.batch_size, self._pace.concurrency):
            # no slot was free for what is to be had
            self._woken.set()
        self._start_those_short_of_slots()

    async def _settle_finished(self, finished: Sequence[Settled]) -> Sequence[Verdict]:
        report = await self._settle(finished)
        self._shut.update(report.shut)
        for destination_id in report.shut:
            if destination_id in self._lanes:
                self._hand_back_waiting(self._lanes[destination_id])
        return report.verdicts

    def _hand_back_waiting(self, lane: Lane) -> None:
        self._short_of_slots.pop(lane.destination.id, None)
        unsent = lane.take_back_waiting()
        if unsent:
            self._begin(self._hand_back_ahead(unsent))

    def _hand_back_overdue(self, lane: Lane, claimed_at: float) -> None:
        if lane.waiting and lane.waiting[0][1] <= claimed_at:
            self._hand_back_waiting(lane)
            self._forget_if_empty(lane)

    async def _hand_back_ahead(self, unsent: Sequence[ClaimedDelivery]) -> None:
        try:
            await self._patience.persistently(lambda: self._release(unsent), "hand back")
        finally:
            self._waiting -= len(unsent)
            self._woken.set()

    def _judged(self, one: Settled, verdict: Verdict) -> None:
        if verdict is Verdict.OVERTAKEN:
            _log.warning(
                "delivery %s: its lease was lost before its attempt ended;"
                " FORMS_WORKER_LEASE_SECONDS is too short for it, or this process stood still",
                one.lease.delivery_id,
            )

    def _written(self, finished: Sequence[Settled]) -> None:
        self._unsettled -= len(finished)
        for one in finished:
            destination_id = one.claimed.destination.id
            lane = self._lanes[destination_id]
            lane.settle(one)
            if lane.waiting:
                self._start(lane)
            # others may have found it full until now; where this worker fills every place there is nothing to find
            if lane.is_short() and not lane.is_full():
                self._changed.add(destination_id)
            self._forget_if_empty(lane)
        self._start_those_short_of_slots()
        self._woken.set()

    async def _drain(self) -> None:
        for lane in self._lanes.values():
            self._hand_back_waiting(lane)
        try:
            async with asyncio.timeout(self._pace.drain.total_seconds()):
                while self.in_flight or self._waiting:
                    self._woken.clear()
                    await self._woken.wait()
        except TimeoutError:
            _log.warning("stopped with %d in flight, to be taken over as their leases end", self.in_flight)
            unfinished = list(self._tasks)
            for task in unfinished:
                task.cancel()
            await asyncio.gather(*unfinished, return_exceptions=True)

    async def _hand_back(self, unsent: Sequence[ClaimedDelivery]) -> None:
        if unsent:
            try:
                await self._release(unsent)
            except StorageUnavailable:
                _log.warning(
                    "%d unsent deliveries could not be handed back; their leases will end", len(unsent)
                )
