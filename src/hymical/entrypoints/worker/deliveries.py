"""The loop that claims, sends and settles deliveries."""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta

from hymical.application.deliveries import Claim, ClaimDue, ReleaseUnsent, SendDelivery, SettleFinished
from hymical.domain.deliveries import Delivered
from hymical.domain.destinations import Destination
from hymical.domain.errors import StorageUnavailable
from hymical.domain.ids import DestinationId, LeaseToken
from hymical.domain.leases import Lease
from hymical.entrypoints.worker.patience import Patience
from hymical.entrypoints.worker.settling import Settling
from hymical.ports.deliveries import ClaimedDelivery, Settled, Verdict
from hymical.ports.ids import Ids
from hymical.ports.wakeups import Bell, WakeUps

_log = logging.getLogger(__name__)
# of the event loop
_TURNS_TO_GATHER = 5
_SHORTEST_TURN, _LONGEST_TURN = 0.005, 0.32


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How much one worker takes on; `drain` is how long requests in flight may take once it has to stop."""

    poll: timedelta
    batch_size: int
    concurrency: int
    drain: timedelta


class DeliveryWorker:
    """Claims what it has free slots for, sends concurrently, and settles whatever has finished.

    A slot is held from the claim until the settlement is committed, so that a crash forgets nothing that was
    not still leased. What finishes while a settlement is being written goes into the next one. What was accepted
    makes room at its destination before it is settled: the next are claimed meanwhile (docs/decisions/0018).
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
        self._settling = Settling(
            settle,
            patience=self._patience,
            name=lambda one: f"delivery {one.lease.delivery_id}",
            judged=self._judged,
            written=self._written,
        )
        self._held = 0
        self._sending: set[asyncio.Task[None]] = set()
        # accepted and not settled yet; all others that are held take up a place at their destination
        self._accepted: dict[LeaseToken, ClaimedDelivery] = {}
        self._places_taken = Counter[DestinationId]()
        # since the last claim began: whether the bell rang, and where something was accepted or settled
        self._rung = True
        self._changed: dict[DestinationId, Destination] = {}
        self._more = False
        self._woken = asyncio.Event()
        self._turn = _SHORTEST_TURN

    @property
    def in_flight(self) -> int:
        return self._held

    def stop(self) -> None:
        """Claims nothing more; `run` returns once what is in flight has ended, or `Pace.drain` has passed."""
        self._patience.end()
        self._woken.set()

    async def run(self) -> None:
        async with self._wakeups.deliveries() as bell, self._settling.open(), self._listening(bell):
            while not self._patience.is_over():
                if self._held < self._pace.concurrency and (self._more or self._may_find_some()):
                    self._more = await self._claim_and_start()
                    continue
                self._woken.clear()
                await self._woken.wait()
                # one claim for those that are answered together
                for _ in range(_TURNS_TO_GATHER):
                    await asyncio.sleep(0)
            await self._drain()

    def _may_find_some(self) -> bool:
        """Where this worker fills every place by itself there is none for it, whatever was settled."""
        return self._rung or any(
            self._places_taken[one.id] < one.max_in_flight for one in self._changed.values()
        )

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
        self._held += len(claim.to_send) + len(claim.given_up)
        self._places_taken.update(one.destination.id for one in claim.to_send)
        self._places_taken.update(one.claimed.destination.id for one in claim.given_up)
        self._settling.add(claim.given_up)
        for claimed in claim.to_send:
            task = asyncio.create_task(self._deliver(claimed, claim.claimed_at))
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)
        return claim.more

    async def _claim(self) -> Claim:
        self._rung, self._changed = False, {}
        return await self._claim_due(
            min(self._pace.batch_size, self._pace.concurrency - self._held), self._accepted_of_each()
        )

    def _accepted_of_each(self) -> Sequence[Lease]:
        """No more of a destination than it may have in flight: a crash sends again what is not settled."""
        number = Counter[DestinationId]()
        accepted = []
        for one in self._accepted.values():
            number[one.destination.id] += 1
            if number[one.destination.id] <= one.destination.max_in_flight:
                accepted.append(one.lease)
        return accepted

    async def _deliver(self, claimed: ClaimedDelivery, claimed_at: float) -> None:
        ended = await self._send(claimed, claimed_at)
        # where more is to be had elsewhere, nothing waits for room
        if isinstance(ended.settlement, Delivered) and not self._more:
            self._accepted[claimed.lease.token] = claimed
            self._leave_place(claimed.destination)
            # first, so that the claim is under way while the settlement is made up
            self._woken.set()
        self._settling.add([ended])

    def _leave_place(self, destination: Destination) -> None:
        self._places_taken[destination.id] -= 1
        if not self._places_taken[destination.id]:
            del self._places_taken[destination.id]
        self._changed[destination.id] = destination

    def _judged(self, one: Settled, verdict: Verdict) -> None:
        if verdict is Verdict.OVERTAKEN:
            _log.warning(
                "delivery %s: its lease was lost before its attempt ended;"
                " FORMS_WORKER_LEASE_SECONDS is too short for it, or this process stood still",
                one.lease.delivery_id,
            )

    def _written(self, finished: Sequence[Settled]) -> None:
        self._held -= len(finished)
        for one in finished:
            destination = one.claimed.destination
            if self._accepted.pop(one.lease.token, None) is None:
                self._leave_place(destination)
            # others may have found it full until now
            self._changed[destination.id] = destination
        self._woken.set()

    async def _drain(self) -> None:
        try:
            async with asyncio.timeout(self._pace.drain.total_seconds()):
                while self._held:
                    self._woken.clear()
                    await self._woken.wait()
        except TimeoutError:
            _log.warning("stopped with %d in flight, to be taken over as their leases end", self._held)
            unfinished = list(self._sending)
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
