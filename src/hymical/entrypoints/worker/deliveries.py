"""The loop that claims, sends and settles deliveries."""

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from hymical.application.deliveries import Claim, ClaimDue, ReleaseUnsent, SendDelivery, SettleFinished
from hymical.domain.errors import StorageUnavailable
from hymical.entrypoints.worker.patience import Patience
from hymical.entrypoints.worker.settling import Settling
from hymical.ports.deliveries import ClaimedDelivery, Settled, Verdict
from hymical.ports.ids import Ids
from hymical.ports.wakeups import WakeUps

_log = logging.getLogger(__name__)
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
    not still leased. What finishes while a settlement is being written goes into the next one.
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
        self._being_settled = asyncio.Lock()
        self._settling = Settling(
            self._settle_batch,
            patience=self._patience,
            name=lambda one: f"delivery {one.lease.delivery_id}",
            judged=self._judged,
            written=self._written,
        )
        self._held = 0
        self._more = False
        self._sending: set[asyncio.Task[None]] = set()
        self._slots_freed = asyncio.Event()
        self._turn = _SHORTEST_TURN

    @property
    def in_flight(self) -> int:
        return self._held

    def stop(self) -> None:
        """Claims nothing more; `run` returns once what is in flight has ended, or `Pace.drain` has passed."""
        self._patience.end()

    async def run(self) -> None:
        async with self._wakeups.deliveries() as bell, self._settling.open():
            while not self._patience.is_over():
                self._more = await self._claim_and_start()
                if self._patience.is_over():
                    break
                if self._held >= self._pace.concurrency:
                    await self._patience.until_any(self._slots_freed.wait())
                elif not self._more:
                    # what was settled may have made room at a destination that was full
                    await self._patience.until_any(
                        bell.wait(self._pace.poll.total_seconds()), self._slots_freed.wait()
                    )
            await self._drain()

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
        self._settling.add(claim.given_up)
        for claimed in claim.to_send:
            task = asyncio.create_task(self._deliver(claimed, claim.claimed_at))
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)
        return claim.more

    async def _claim(self) -> Claim:
        # where all was full, what is being settled makes room: one claim behind it brings more than two beside it
        async with contextlib.nullcontext() if self._more else self._being_settled:
            self._slots_freed.clear()
            return await self._claim_due(min(self._pace.batch_size, self._pace.concurrency - self._held))

    async def _settle_batch(self, finished: Sequence[Settled]) -> Sequence[Verdict]:
        async with self._being_settled:
            return await self._settle(finished)

    async def _deliver(self, claimed: ClaimedDelivery, claimed_at: float) -> None:
        self._settling.add([await self._send(claimed, claimed_at)])

    def _judged(self, one: Settled, verdict: Verdict) -> None:
        if verdict is Verdict.OVERTAKEN:
            _log.warning(
                "delivery %s: its lease was lost before its attempt ended;"
                " FORMS_WORKER_LEASE_SECONDS is too short for it, or this process stood still",
                one.lease.delivery_id,
            )

    def _written(self, finished: Sequence[Settled]) -> None:
        self._held -= len(finished)
        self._slots_freed.set()

    async def _drain(self) -> None:
        try:
            async with asyncio.timeout(self._pace.drain.total_seconds()):
                while self._held:
                    self._slots_freed.clear()
                    await self._slots_freed.wait()
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
