"""The loop that claims, sends and settles, with a sender that a test holds up as it likes."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta

import pytest

from hymical.application.deliveries import ClaimDue, ReleaseUnsent, SendDelivery, SettleFinished
from hymical.domain.deliveries import Delivered, Delivery, DeliveryState, Reason
from hymical.domain.destinations import Trouble, TroublePolicy
from hymical.domain.errors import StorageUnavailable
from hymical.domain.ids import DeliveryId, DestinationId, SubmissionId
from hymical.domain.leases import Lease
from hymical.domain.messages import Message
from hymical.domain.outcomes import Accepted, Answer, Refused
from hymical.entrypoints.worker.deliveries import DeliveryWorker, Pace
from hymical.ports.deliveries import ClaimedBatch, DeliveryQueue, Settled, SettleReport, WebhookRequest
from tests.builders import LEASE, POLICY, an_answer
from tests.signals import PATIENCE, Signal, SteadyIds
from tests.worlds import World, memory_world

HOUR = timedelta(hours=1)


class ControlledSender:
    """Accepts everything; those to whom `hold` was said only when `let_go` is."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.ended: list[str] = []
        self.most_in_flight = 0
        self.refused: set[DeliveryId] = set()
        self.takes = timedelta(milliseconds=12)
        self.signal = Signal()
        self._held: dict[str, asyncio.Event] = {}
        self._in_flight = 0

    def hold(self, deliveries: Sequence[Delivery]) -> None:
        self._held.update({delivery.id: asyncio.Event() for delivery in deliveries})

    def let_go(self, deliveries: Sequence[Delivery]) -> None:
        for delivery in deliveries:
            self._held[delivery.id].set()

    async def send(self, request: WebhookRequest) -> Answer:
        delivery_id = dict(request.headers)["hymical-delivery"]
        self._in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self._in_flight)
        self.begun.append(delivery_id)
        await self.signal.tell()
        try:
            if delivery_id in self._held:
                await self._held[delivery_id].wait()
        finally:
            self._in_flight -= 1
        self.ended.append(delivery_id)
        answer = an_answer(Refused(), 503) if delivery_id in self.refused else an_answer(Accepted(), 200)
        return replace(answer, duration=self.takes)

    async def has_begun(self, count: int) -> None:
        await self.signal.when(lambda: len(self.begun) >= count)


class WatchedQueue:
    """A queue that tells what was claimed and settled, and fails when a test says so."""

    def __init__(self, queue: DeliveryQueue) -> None:
        self._queue = queue
        self.claims: list[int] = []
        self.settled: list[DeliveryId] = []
        self.settlements_away = 0
        self.settlements_begun = 0
        self.writing = asyncio.Event()
        self.writing.set()
        self.claims_away = 0
        self.contended = 0
        self.blind_to_answers = False
        self.bringing = asyncio.Event()
        self.bringing.set()
        self.unwritable: set[DeliveryId] = set()
        self.when_claimed: list[DeliveryWorker] = []
        self.released: list[DeliveryId] = []
        self.releases_away = 0
        self.releasing = asyncio.Event()
        self.releasing.set()
        self.signal = Signal()

    async def owe(self, messages: Sequence[Message], deliveries: Sequence[Delivery]) -> None:
        await self._queue.owe(messages, deliveries)

    async def claim(self, *, limit: int, lease: timedelta, making_room: Sequence[Lease] = ()) -> ClaimedBatch:
        self.claims.append(limit)
        await self.signal.tell()
        if self.claims_away:
            self.claims_away -= 1
            raise StorageUnavailable
        if self.contended:
            self.contended -= 1
            return ClaimedBatch(deliveries=[], more=True, rooms={})
        batch = await self._queue.claim(
            limit=limit, lease=lease, making_room=() if self.blind_to_answers else making_room
        )
        await self.bringing.wait()
        for worker in self.when_claimed:
            worker.stop()
        return batch

    async def settle(self, settled: Sequence[Settled], *, unless_troubled: bool = False) -> SettleReport:
        self.settlements_begun += 1
        await self.signal.tell()
        await self.writing.wait()
        if self.settlements_away:
            self.settlements_away -= 1
            raise StorageUnavailable
        if self.unwritable & {one.lease.delivery_id for one in settled}:
            raise ZeroDivisionError
        report = await self._queue.settle(settled, unless_troubled=unless_troubled)
        self.settled += [one.lease.delivery_id for one in settled]
        await self.signal.tell()
        return report

    async def release(self, leases: Sequence[Lease]) -> None:
        await self.releasing.wait()
        if self.releases_away:
            self.releases_away -= 1
            raise StorageUnavailable
        await self._queue.release(leases)
        self.released += [lease.delivery_id for lease in leases]
        await self.signal.tell()

    async def replay(self, delivery_id: DeliveryId) -> None:
        await self._queue.replay(delivery_id)

    async def resend(self, delivery_id: DeliveryId, new_id: DeliveryId) -> None:
        await self._queue.resend(delivery_id, new_id)

    async def withdraw_from(self, destination_id: DestinationId, reason: Reason) -> None:
        await self._queue.withdraw_from(destination_id, reason)

    async def withdraw_submission(self, submission_id: SubmissionId) -> None:
        await self._queue.withdraw_submission(submission_id)

    async def has_released(self, count: int) -> None:
        await self.signal.when(lambda: len(self.released) >= count)

    async def has_begun_to_settle(self, times: int) -> None:
        await self.signal.when(lambda: self.settlements_begun >= times)

    async def has_settled(self, count: int) -> None:
        await self.signal.when(lambda: len(self.settled) >= count)

    async def has_claimed(self, times: int) -> None:
        await self.signal.when(lambda: len(self.claims) >= times)


async def turns() -> None:
    """Enough of the event loop for whatever does not wait."""
    for _ in range(50):
        await asyncio.sleep(0)


class Site:
    """A worker over the memory adapters. It looks once an hour, so that whatever it does it was woken for."""

    def __init__(self, *, concurrency: int = 10, batch_size: int = 10, drain: timedelta = HOUR) -> None:
        self.world: World = memory_world()
        self.queue = WatchedQueue(self.world.queue)
        self.sender = ControlledSender()
        ids, clock = SteadyIds(), self.world.clock
        self.worker = DeliveryWorker(
            claim_due=ClaimDue(queue=self.queue, policy=POLICY, lease=LEASE, clock=clock, ids=ids),
            send=SendDelivery(sender=self.sender, policy=POLICY, clock=clock, ids=ids),
            settle=SettleFinished(
                queue=self.queue,
                health=self.world.health,
                destinations=self.world.destinations,
                transactions=self.world.transactions,
                policy=TroublePolicy(),
                ids=ids,
            ),
            release=ReleaseUnsent(queue=self.queue),
            wakeups=self.world.wakeups,
            ids=ids,
            pace=Pace(poll=HOUR, batch_size=batch_size, concurrency=concurrency, drain=drain),
        )

    @asynccontextmanager
    async def working(self) -> AsyncIterator[asyncio.Task[None]]:
        """The worker runs in the block, and has come to its end behind it."""
        running = asyncio.create_task(self.worker.run())
        try:
            yield running
        finally:
            self.worker.stop()
            async with asyncio.timeout(PATIENCE):
                await running

    async def states(self, deliveries: Sequence[Delivery]) -> set[DeliveryState]:
        return {(await self.world.history.get(delivery.id)).state for delivery in deliveries}


async def test_what_is_due_is_delivered() -> None:
    site = Site()
    owed = await site.world.owes(3)

    async with site.working():
        await site.queue.has_settled(3)

    assert await site.states(owed) == {DeliveryState.DELIVERED}
    assert sorted(site.sender.begun) == sorted(delivery.id for delivery in owed)


async def test_a_worker_is_woken_long_before_it_would_look_again() -> None:
    site = Site()
    destination = await site.world.destination()

    async with site.working():
        await site.queue.has_claimed(1)
        for round_ in range(1, 4):
            await site.world.owes(1, destination)
            await site.queue.has_settled(round_)


async def test_more_than_a_batch_is_claimed_without_waiting_in_between() -> None:
    site = Site(batch_size=2)
    owed = await site.world.owes(5)

    async with site.working():
        await site.queue.has_settled(5)

    assert await site.states(owed) == {DeliveryState.DELIVERED}
    assert set(site.queue.claims) == {2}


async def test_a_worker_that_finds_others_claiming_asks_again_after_pauses_that_grow() -> None:
    site = Site()
    await site.world.owes(1)
    site.queue.contended = 5
    began = asyncio.get_running_loop().time()

    async with site.working():
        await site.queue.has_settled(1)

    # half of 5, 10, 20, 40 and 80 ms, with these dice
    assert asyncio.get_running_loop().time() - began > 0.07


async def test_one_slow_receiver_does_not_hold_up_the_rest() -> None:
    site = Site(concurrency=2)
    (slow,) = await site.world.owes(1)
    rest = await site.world.owes(20, await site.world.destination())
    site.sender.hold([slow])

    async with site.working():
        await site.queue.has_settled(20)
        assert await site.states(rest) == {DeliveryState.DELIVERED}
        assert await site.states([slow]) == {DeliveryState.PROCESSING}
        site.sender.let_go([slow])

    assert await site.states([slow]) == {DeliveryState.DELIVERED}


async def test_there_is_never_more_in_flight_than_may_be() -> None:
    site = Site(concurrency=3, batch_size=10)
    owed = await site.world.owes(10)
    site.sender.hold(owed)

    async with site.working():
        await site.sender.has_begun(3)
        for number in range(1, 11):
            site.sender.let_go([one for one in owed if one.id == site.sender.begun[number - 1]])
            await site.queue.has_settled(number)
            await site.sender.has_begun(min(number + 3, 10))

    assert site.sender.most_in_flight == 3
    assert max(site.queue.claims) == 3
    assert await site.states(owed) == {DeliveryState.DELIVERED}


async def test_a_slot_is_free_once_its_request_is_answered_and_no_more_than_twice_the_slots_go_unsettled() -> (
    None
):
    site = Site(concurrency=2, batch_size=2)
    owed = await site.world.owes(7)
    site.queue.writing.clear()

    async with site.working():
        await site.sender.has_begun(4)
        await turns()
        assert len(site.sender.begun) == 4
        assert site.worker.in_flight == 4
        site.queue.writing.set()
        await site.queue.has_settled(7)

    assert site.sender.most_in_flight <= 2
    assert await site.states(owed) == {DeliveryState.DELIVERED}


async def test_a_worker_with_fewer_slots_than_a_batch_waited_for_a_settlement_with_all_of_them_free() -> None:
    site = Site(concurrency=2, batch_size=10)
    await site.world.owes(4, await site.world.destination(max_in_flight=10))
    site.queue.writing.clear()

    async with site.working():
        await site.sender.has_begun(4)
        assert site.queue.settled == []
        site.queue.writing.set()
        await site.queue.has_settled(4)


async def test_what_was_accepted_makes_room_before_it_is_settled() -> None:
    site = Site()
    owed = await site.world.owes(7, await site.world.destination(max_in_flight=2))
    site.sender.hold(owed)
    site.queue.writing.clear()

    async with site.working():
        await site.sender.has_begun(2)
        site.sender.let_go(owed[:2])
        await site.sender.has_begun(4)
        assert site.queue.settled == []
        site.sender.let_go(owed)
        site.queue.writing.set()
        await site.queue.has_settled(7)

    assert site.sender.most_in_flight == 2
    assert await site.states(owed) == {DeliveryState.DELIVERED}


async def test_what_was_not_accepted_makes_no_room_before_it_is_settled() -> None:
    site = Site()
    owed = await site.world.owes(4, await site.world.destination(max_in_flight=2))
    site.sender.refused = {one.id for one in owed[:2]}
    site.queue.writing.clear()

    async with site.working():
        await site.queue.has_begun_to_settle(1)
        await turns()
        assert len(site.sender.begun) == 2
        site.queue.writing.set()
        await site.queue.has_settled(4)


async def test_a_settlement_calls_for_no_claim_where_this_worker_fills_every_place() -> None:
    site = Site()
    owed = await site.world.owes(6, await site.world.destination(max_in_flight=3))
    site.sender.hold(owed)
    site.queue.writing.clear()

    async with site.working():
        await site.sender.has_begun(3)
        site.sender.let_go(owed[:3])
        await site.sender.has_begun(6)
        await turns()
        before = len(site.queue.claims)
        site.queue.writing.set()
        await site.queue.has_settled(3)
        await turns()
        assert len(site.queue.claims) == before
        site.sender.let_go(owed)
        await site.queue.has_settled(6)


async def test_the_room_that_a_breaker_leaves_as_it_closes_is_taken_at_once() -> None:
    site = Site()
    destination = await site.world.destination(max_in_flight=3)
    owed = await site.world.owes(8, destination)
    now = site.world.clock.now()
    opened = Trouble(failing_since=now, failures_in_a_row=6, openings=1, held_until=now)
    await site.world.health.save({destination.id: opened})
    site.queue.writing.clear()

    async with site.working():
        await site.queue.has_begun_to_settle(1)
        await turns()
        assert len(site.sender.begun) == 1
        site.queue.writing.set()
        await site.sender.has_begun(8)

    assert await site.states(owed) == {DeliveryState.DELIVERED}


async def test_room_that_could_not_be_had_before_a_settlement_is_had_behind_it() -> None:
    site = Site()
    owed = await site.world.owes(2, await site.world.destination(max_in_flight=1))
    site.queue.blind_to_answers = True

    async with site.working():
        await site.queue.has_settled(2)

    assert await site.states(owed) == {DeliveryState.DELIVERED}


async def test_room_that_could_not_be_had_is_had_though_its_settlement_was_written_during_the_claim() -> None:
    site = Site()
    owed = await site.world.owes(2, await site.world.destination(max_in_flight=1))
    site.sender.hold(owed[:1])
    site.queue.blind_to_answers = True

    async with site.working():
        await site.sender.has_begun(1)
        site.queue.bringing.clear()
        site.queue.writing.clear()
        site.sender.let_go(owed[:1])
        await site.queue.has_claimed(2)
        site.queue.writing.set()
        await site.queue.has_settled(1)
        await turns()
        site.queue.bringing.set()
        await site.queue.has_settled(2)

    assert await site.states(owed) == {DeliveryState.DELIVERED}


async def test_room_that_another_left_while_a_settlement_was_written_stayed_empty() -> None:
    site = Site()
    destination = await site.world.destination(max_in_flight=2)
    await site.world.owes(1, destination)
    (another_s,) = (await site.world.queue.claim(limit=1, lease=LEASE)).deliveries
    owed = await site.world.owes(4, destination)
    site.sender.hold(owed)
    site.queue.writing.clear()

    async with site.working():
        await site.sender.has_begun(1)
        site.sender.let_go(owed[:1])
        await site.sender.has_begun(2)
        await site.world.queue.settle([Settled(claimed=another_s, settlement=Delivered(), attempt=None)])
        assert not (await site.world.queue.claim(limit=1, lease=LEASE)).deliveries
        site.queue.writing.set()
        await site.sender.has_begun(3)
        site.sender.let_go(owed)
        await site.queue.has_settled(4)


async def test_a_slot_whose_room_was_taken_is_free_for_others_before_it_is_settled() -> None:
    site = Site(concurrency=2)
    taken, slow = await site.world.owes(2, await site.world.destination(max_in_flight=1))
    site.sender.hold([slow])
    site.queue.writing.clear()

    async with site.working():
        await site.sender.has_begun(2)
        (other,) = await site.world.owes(1, await site.world.destination())
        await site.sender.has_begun(3)
        assert site.queue.settled == []
        site.queue.writing.set()
        site.sender.let_go([slow])

    assert await site.states([taken, slow, other]) == {DeliveryState.DELIVERED}


async def test_a_worker_that_stops_while_room_was_taken_ends_once_all_is_settled() -> None:
    site = Site()
    sent, unsent = await site.world.owes(2, await site.world.destination(max_in_flight=1))
    site.sender.hold([sent])
    site.queue.writing.clear()

    async with asyncio.timeout(PATIENCE), site.working() as running:
        await site.sender.has_begun(1)
        site.queue.when_claimed = [site.worker]
        site.sender.let_go([sent])
        await site.queue.has_begun_to_settle(1)
        await turns()
        site.queue.writing.set()
        await running

    assert await site.states([sent]) == {DeliveryState.DELIVERED}
    assert await site.states([unsent]) == {DeliveryState.PENDING}


async def test_a_worker_with_more_to_be_had_claims_on_while_it_settles() -> None:
    site = Site(batch_size=2)
    await site.world.owes(6)
    site.queue.writing.clear()

    async with site.working():
        await site.queue.has_begun_to_settle(1)
        await site.sender.has_begun(6)
        site.queue.writing.set()
        await site.queue.has_settled(6)


# Claiming ahead


async def claimed_ahead(site: Site, owed: Sequence[Delivery], *, most: int) -> None:
    """Until `most` are on their way, one was delivered and `most` less one wait; no more claims are let through."""
    site.sender.hold(owed)
    await site.sender.has_begun(most)
    site.sender.let_go(owed[:1])
    await site.sender.has_begun(most + 1)
    await site.queue.has_settled(1)
    await turns()
    assert len(site.sender.begun) == most + 1
    assert await site.states(owed[1 : 2 * most]) == {DeliveryState.PROCESSING}
    site.queue.bringing.clear()


async def one_fails_and_is_not_settled(site: Site, one: Delivery) -> None:
    """It has left its slot, and keeps its place until settlements are let through."""
    site.queue.writing.clear()
    site.sender.refused = {one.id}
    site.sender.let_go([one])
    await site.queue.has_begun_to_settle(site.queue.settlements_begun + 1)


async def test_what_is_answered_quickly_is_followed_by_what_was_claimed_ahead() -> None:
    site = Site()
    owed = await site.world.owes(9, await site.world.destination(max_in_flight=3))

    async with site.working():
        await claimed_ahead(site, owed, most=3)
        site.sender.let_go(owed[1:3])
        await site.sender.has_begun(6)
        assert site.sender.begun == [one.id for one in owed[:6]]
        site.queue.bringing.set()
        site.sender.let_go(owed)
        await site.queue.has_settled(9)

    assert site.sender.most_in_flight == 3
    assert site.queue.released == []


async def test_no_more_is_claimed_ahead_than_three_times_what_may_be_in_flight() -> None:
    site = Site(concurrency=50)
    owed = await site.world.owes(30, await site.world.destination(max_in_flight=3))
    site.sender.hold(owed)
    held: list[int] = []

    async with site.working():
        await site.sender.has_begun(3)
        for nth, one in enumerate(owed[:18]):
            site.sender.let_go([one])
            await site.sender.has_begun(nth + 4)
            await site.queue.has_settled(nth + 1)
            await turns()
            states = [await site.states([each]) for each in owed]
            held.append(states.count({DeliveryState.PROCESSING}))
        # each claim brings up to three, where no more than six wait
        assert held[:4] == [5, 7, 9, 11]
        assert max(held) == 3 + 9
        assert min(held[4:]) >= 3 + 6
        site.sender.let_go(owed)
        await site.queue.has_settled(30)

    assert site.sender.most_in_flight == 3
    assert site.sender.begun == [one.id for one in owed]


async def test_nothing_is_claimed_ahead_for_a_destination_that_takes_its_time() -> None:
    site = Site()
    site.sender.takes = timedelta(milliseconds=51)
    owed = await site.world.owes(6, await site.world.destination(max_in_flight=3))
    site.sender.hold(owed)

    async with site.working():
        await site.sender.has_begun(3)
        site.sender.let_go(owed[:1])
        await site.sender.has_begun(4)
        await site.queue.has_settled(1)
        await turns()
        assert await site.states(owed[4:]) == {DeliveryState.PENDING}
        site.sender.let_go(owed)
        await site.queue.has_settled(6)


async def test_nothing_is_claimed_ahead_where_nothing_was_accepted_since_the_last_claim() -> None:
    site = Site()
    destination = await site.world.destination(max_in_flight=2)
    owed = await site.world.owes(3, destination)
    site.sender.hold(owed)

    async with site.working():
        await site.sender.has_begun(2)
        site.sender.let_go(owed[:1])
        await site.sender.has_begun(3)
        await site.queue.has_settled(1)
        await turns()
        hanging = await site.world.owes(2, destination)
        await turns()
        assert await site.states(hanging) == {DeliveryState.PENDING}
        site.sender.let_go(owed)
        await site.queue.has_settled(5)


async def test_nothing_is_claimed_ahead_by_a_worker_with_most_of_its_slots_taken() -> None:
    site = Site(concurrency=5)
    owed = await site.world.owes(6, await site.world.destination(max_in_flight=3))
    site.sender.hold(owed)
    site.queue.writing.clear()

    async with site.working():
        await site.sender.has_begun(3)
        site.sender.let_go(owed[:1])
        await site.sender.has_begun(4)
        await turns()
        assert await site.states(owed[4:]) == {DeliveryState.PENDING}
        site.queue.writing.set()
        site.sender.let_go(owed)
        await site.queue.has_settled(6)


async def test_nothing_is_claimed_ahead_by_a_worker_for_most_of_whose_slots_something_waits() -> None:
    site = Site(concurrency=10)
    owed = await site.world.owes(12, await site.world.destination(max_in_flight=3))
    site.sender.hold(owed)

    async with site.working():
        await site.sender.has_begun(3)
        for nth in range(2):
            site.sender.let_go(owed[nth : nth + 1])
            await site.sender.has_begun(nth + 4)
            await site.queue.has_settled(nth + 1)
            await turns()
        # four of them wait beside the three that are on their way
        assert await site.states(owed[5:9]) == {DeliveryState.PROCESSING}
        site.sender.let_go(owed[2:3])
        await site.sender.has_begun(6)
        await site.queue.has_settled(3)
        await turns()
        assert await site.states(owed[9:]) == {DeliveryState.PENDING}
        site.sender.let_go(owed)
        await site.queue.has_settled(12)


async def test_what_waits_holds_no_slot() -> None:
    site = Site(concurrency=6)
    owed = await site.world.owes(6, await site.world.destination(max_in_flight=3))

    async with site.working():
        await claimed_ahead(site, owed, most=3)
        site.queue.bringing.set()
        others = await site.world.owes(4, await site.world.destination())
        site.sender.hold(others)
        await site.sender.has_begun(7)
        await turns()
        assert site.sender.begun[4:] == [one.id for one in others[:3]]
        site.sender.let_go([*owed, *others])
        await site.queue.has_settled(10)


async def test_a_claim_that_found_more_room_than_before_began_more_than_the_worker_had_slots_for() -> None:
    site = Site(concurrency=10)
    owed = await site.world.owes(60, await site.world.destination("https://a.example/", max_in_flight=10))
    site.sender.hold(owed)
    others = await site.world.queue.claim(limit=9, lease=LEASE)

    async with site.working():
        await site.sender.has_begun(1)
        for nth, one in enumerate(owed[9:15], 1):
            # one place is left, and each settlement brings one more to wait for it
            site.queue.writing.clear()
            site.sender.let_go([one])
            await site.sender.has_begun(nth + 1)
            await turns()
            site.queue.writing.set()
            await site.queue.has_settled(nth)
            await turns()
        await site.world.queue.settle(
            [Settled(claimed=one, settlement=Delivered(), attempt=None) for one in others.deliveries]
        )
        for number in range(8):
            elsewhere = await site.world.owes(5, await site.world.destination(f"https://b{number}.example/"))
            site.sender.hold(elsewhere)
            owed = [*owed, *elsewhere]
        await site.sender.has_begun(16)
        await turns()
        assert site.sender.most_in_flight == 10
        site.sender.let_go(owed)
        await site.queue.has_settled(91)


async def test_what_waits_for_a_slot_has_the_first_that_is_free() -> None:
    site = Site(concurrency=6)
    owed = await site.world.owes(6, await site.world.destination(max_in_flight=3))

    async with site.working():
        await claimed_ahead(site, owed, most=3)
        await one_fails_and_is_not_settled(site, owed[1])
        others = await site.world.owes(5, await site.world.destination())
        site.sender.hold(others)
        site.queue.bringing.set()
        await site.sender.has_begun(8)
        site.queue.writing.set()
        await site.queue.has_settled(2)
        await turns()
        assert len(site.sender.begun) == 8
        site.sender.let_go(others[:1])
        await site.sender.has_begun(9)
        assert site.sender.begun[8] == owed[4].id
        site.sender.let_go([*owed, *others])
        await site.queue.has_settled(11)

    assert site.sender.most_in_flight == 6


async def test_a_claim_that_is_tried_again_asks_for_something_though_what_waited_took_the_last_slot() -> None:
    site = Site(concurrency=6)
    owed = await site.world.owes(6, await site.world.destination(max_in_flight=3))
    elsewhere = await site.world.destination()

    async with site.working():
        await claimed_ahead(site, owed, most=3)
        await one_fails_and_is_not_settled(site, owed[1])
        others = await site.world.owes(3, elsewhere)
        site.sender.hold(others)
        site.queue.bringing.set()
        await site.sender.has_begun(7)
        await turns()
        site.queue.claims_away = 1
        before = len(site.queue.claims)
        (last,) = await site.world.owes(1, elsewhere)
        await site.queue.has_claimed(before + 1)
        site.queue.writing.set()
        await site.sender.has_begun(8)
        await site.queue.has_claimed(before + 2)
        assert site.queue.claims[before:] == [1, 1]
        site.sender.let_go([*owed, *others])
        await site.queue.has_settled(10)

    assert site.sender.most_in_flight == 6
    assert await site.states([last]) == {DeliveryState.DELIVERED}


async def test_a_destination_of_which_all_waited_and_was_handed_back_stayed_in_memory() -> None:
    site = Site(concurrency=4)
    owed = await site.world.owes(4, await site.world.destination(max_in_flight=2))
    site.sender.refused = {owed[1].id, owed[2].id}

    async with site.working():
        await claimed_ahead(site, owed, most=2)
        site.queue.writing.clear()
        site.sender.let_go(owed[1:3])
        await site.queue.has_begun_to_settle(2)
        site.queue.bringing.set()
        await turns()
        site.queue.bringing.clear()
        # a claim for four slots, of which what waits takes one meanwhile
        others = [(await site.world.owes(1, await site.world.destination()))[0] for _ in range(4)]
        site.sender.hold(others)
        await turns()
        site.queue.writing.set()
        await site.sender.has_begun(4)
        site.queue.bringing.set()
        await site.queue.has_released(1)
        (handed_back,) = (one for one in others if one.id in site.queue.released)
        await site.world.queue.withdraw_from(handed_back.destination_id, Reason.DESTINATION_DISABLED)
        site.sender.let_go([*owed, *others])
        await site.queue.has_settled(7)
        await turns()
        assert not site.worker._lanes  # noqa: SLF001  nothing else shows it
        assert not site.worker._short_of_slots  # noqa: SLF001


async def test_what_waits_is_not_sent_in_place_of_what_failed_before_that_is_settled() -> None:
    site = Site()
    owed = await site.world.owes(6, await site.world.destination(max_in_flight=3))

    async with site.working():
        await claimed_ahead(site, owed, most=3)
        await one_fails_and_is_not_settled(site, owed[1])
        await turns()
        assert len(site.sender.begun) == 4
        site.queue.writing.set()
        await site.sender.has_begun(5)
        site.queue.bringing.set()
        site.sender.let_go(owed)
        await site.queue.has_settled(6)

    assert site.queue.released == []


async def test_what_waits_is_handed_back_when_the_breaker_opens() -> None:
    site = Site()
    destination = await site.world.destination(max_in_flight=5)
    owed = await site.world.owes(10, destination)
    site.sender.refused = {one.id for one in owed[1:6]}

    async with site.working():
        await claimed_ahead(site, owed, most=5)
        site.queue.writing.clear()
        site.queue.releases_away = 2
        site.sender.let_go(owed[1:6])
        await turns()
        site.queue.writing.set()
        await site.queue.has_released(4)

        site.queue.bringing.set()

    assert set(site.sender.begun) == {one.id for one in owed[:6]}
    assert site.queue.released == [one.id for one in owed[6:]]
    assert await site.states(owed[6:]) == {DeliveryState.PENDING}


async def test_what_a_claim_brought_that_had_not_seen_the_breaker_open_was_sent_all_the_same() -> None:
    site = Site(concurrency=20)
    owed = await site.world.owes(12, await site.world.destination(max_in_flight=6))
    site.sender.refused = {one.id for one in owed[1:6]}
    site.sender.hold(owed)

    async with site.working():
        await site.sender.has_begun(6)
        site.queue.bringing.clear()
        site.sender.let_go(owed[:1])
        await site.queue.has_claimed(2)
        await site.queue.has_settled(1)
        site.sender.let_go(owed[1:6])
        await site.queue.has_settled(6)
        site.queue.bringing.set()
        await site.queue.has_released(6)

    assert len(site.sender.begun) == 6
    assert await site.states(owed[6:]) == {DeliveryState.PENDING}
    # nor is anything kept of a destination of which nothing is held
    assert site.worker._lanes == {}  # noqa: SLF001


async def test_what_waits_is_handed_back_at_once_by_a_worker_that_stops() -> None:
    site = Site()
    owed = await site.world.owes(6, await site.world.destination(max_in_flight=3))

    async with site.working() as running:
        await claimed_ahead(site, owed, most=3)
        site.queue.bringing.set()
        site.queue.releasing.clear()
        site.worker.stop()
        await turns()
        site.sender.let_go(owed)
        await site.queue.has_settled(4)
        await turns()
        assert not running.done()
        site.queue.releasing.set()

    assert await site.states(owed[:4]) == {DeliveryState.DELIVERED}
    assert await site.states(owed[4:]) == {DeliveryState.PENDING}


async def test_what_has_waited_for_long_is_handed_back_instead_of_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("hymical.entrypoints.worker.deliveries._LONGEST_WAIT_SECONDS", 0.05)
    site = Site()
    owed = await site.world.owes(6, await site.world.destination(max_in_flight=3))

    async with site.working():
        await claimed_ahead(site, owed, most=3)
        await site.queue.has_released(2)
        assert site.queue.released == [one.id for one in owed[4:]]
        assert len(site.sender.begun) == 4
        site.queue.bringing.set()
        site.sender.let_go(owed)
        await site.queue.has_settled(6)


async def test_a_crash_sends_no_more_again_than_four_times_what_may_be_in_flight() -> None:
    site = Site(concurrency=50)
    owed = await site.world.owes(12, await site.world.destination(max_in_flight=2))
    site.sender.hold(owed)
    site.queue.writing.clear()

    async with site.working():
        await site.sender.has_begun(2)
        for one in owed:
            site.sender.let_go([one])
            await turns()
        assert len(site.sender.begun) == 8
        site.queue.writing.set()
        await site.queue.has_settled(12)

    assert site.sender.most_in_flight == 2
    assert await site.states(owed) == {DeliveryState.DELIVERED}


# Stopping


async def test_a_worker_that_stops_lets_what_is_in_flight_end_and_claims_nothing_more() -> None:
    site = Site(concurrency=2)
    destination = await site.world.destination()
    in_flight = await site.world.owes(2, destination)
    waiting = await site.world.owes(2, destination)
    site.sender.hold(in_flight)

    async with site.working() as running:
        await site.sender.has_begun(2)
        site.worker.stop()
        await asyncio.sleep(0)
        assert not running.done()
        site.sender.let_go(in_flight)

    assert await site.states(in_flight) == {DeliveryState.DELIVERED}
    assert await site.states(waiting) == {DeliveryState.PENDING}
    assert site.queue.claims == [2]


async def test_an_idle_worker_stops_at_once() -> None:
    site = Site()

    async with site.working():
        await site.queue.has_claimed(1)

    assert site.queue.claims == [10]


async def test_a_worker_that_was_stopped_before_it_began_claims_nothing() -> None:
    site = Site()
    await site.world.owes()
    site.worker.stop()

    async with site.working():
        pass

    assert site.queue.claims == []


async def test_what_was_claimed_while_it_stopped_is_handed_back() -> None:
    site = Site()
    owed = await site.world.owes(2)
    site.queue.when_claimed = [site.worker]

    async with asyncio.timeout(PATIENCE), site.working() as running:
        await running

    assert site.sender.begun == []
    assert await site.states(owed) == {DeliveryState.PENDING}
    taken_up = (await site.world.queue.claim(limit=10, lease=LEASE)).deliveries
    assert [(one.lost, one.lease.number) for one in taken_up] == [(False, 2), (False, 2)]


async def test_what_does_not_end_in_time_is_left_to_whoever_takes_over_its_lease(
    caplog: pytest.LogCaptureFixture,
) -> None:
    site = Site(drain=timedelta(0))
    owed = await site.world.owes(1)
    site.sender.hold(owed)

    async with site.working():
        await site.sender.has_begun(1)

    assert "1 in flight" in caplog.text
    assert site.sender.ended == []
    assert await site.states(owed) == {DeliveryState.PROCESSING}
    site.world.clock.move(LEASE)
    (taken_over,) = (await site.world.queue.claim(limit=10, lease=LEASE)).deliveries
    assert taken_over.lost


# A database that comes and goes


async def test_a_settlement_is_tried_until_it_is_written() -> None:
    site = Site()
    owed = await site.world.owes(1)
    site.queue.settlements_away = 2

    async with site.working():
        await site.queue.has_settled(1)

    assert await site.states(owed) == {DeliveryState.DELIVERED}
    assert site.sender.begun == [owed[0].id]


async def test_a_worker_that_stops_still_writes_what_it_sent() -> None:
    site = Site()
    owed = await site.world.owes(1)
    site.sender.hold(owed)
    site.queue.settlements_away = 1

    async with site.working():
        await site.sender.has_begun(1)
        site.worker.stop()
        site.sender.let_go(owed)

    assert await site.states(owed) == {DeliveryState.DELIVERED}


async def test_claiming_goes_on_when_the_database_is_back(caplog: pytest.LogCaptureFixture) -> None:
    site = Site()
    site.queue.claims_away = 2
    owed = await site.world.owes(1)

    async with site.working():
        await site.queue.has_settled(1)

    assert await site.states(owed) == {DeliveryState.DELIVERED}
    assert caplog.text.count("the database is away") == 1


async def test_a_worker_can_be_stopped_while_the_database_is_away() -> None:
    site = Site()
    site.queue.claims_away = 1_000

    async with site.working():
        await site.queue.has_claimed(1)


async def test_a_settlement_that_cannot_be_written_does_not_hold_up_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    site = Site()
    owed = await site.world.owes(3)
    site.queue.unwritable = {owed[1].id}

    async with site.working():
        await site.queue.has_settled(2)
        (later,) = await site.world.owes(1, await site.world.destination())
        await site.queue.has_settled(3)

    assert await site.states([owed[0], owed[2], later]) == {DeliveryState.DELIVERED}
    assert await site.states([owed[1]]) == {DeliveryState.PROCESSING}
    assert owed[1].id in caplog.text


async def test_an_unwritable_settlement_gives_its_slot_back() -> None:
    site = Site(concurrency=1)
    owed = await site.world.owes(2)
    site.queue.unwritable = {owed[0].id}

    async with site.working():
        await site.queue.has_settled(1)

    assert await site.states([owed[1]]) == {DeliveryState.DELIVERED}


async def test_a_lease_that_was_lost_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    site = Site()
    owed = await site.world.owes(1)
    site.sender.hold(owed)

    async with site.working():
        await site.sender.has_begun(1)
        site.world.clock.move(LEASE)
        await site.world.queue.claim(limit=1, lease=LEASE)
        site.sender.let_go(owed)
        await site.queue.has_settled(1)

    assert "FORMS_WORKER_LEASE_SECONDS" in caplog.text
    assert await site.states(owed) == {DeliveryState.PROCESSING}
