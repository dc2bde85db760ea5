"""Several workers on one queue, in any order of events: places, slots and deliveries hold."""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import TypeVar

import pytest

from hymical.application.deliveries import ClaimDue, ReleaseUnsent, SendDelivery, SettleFinished
from hymical.domain.deliveries import Delivery, DeliveryState
from hymical.domain.destinations import TroublePolicy
from hymical.domain.leases import Lease
from hymical.domain.messages import Message
from hymical.domain.outcomes import Accepted, Answer, Refused
from hymical.entrypoints.worker.deliveries import DeliveryWorker, Pace
from hymical.ports.deliveries import ClaimedBatch, Settled, SettleReport, WebhookRequest
from tests.builders import LEASE, POLICY, an_answer
from tests.signals import Signal, SteadyIds
from tests.worlds import World, memory_world

_Result = TypeVar("_Result")
_OWED = 40
_LONGEST = 20.0


class Receivers:
    """Count what is on its way to each URL; answer late, and sometimes not with 200."""

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice
        self._refuses = dice.choice((0.05, 0.3))
        self.requests = Counter[str]()
        self.most = Counter[str]()
        self.accepted = Counter[str]()
        self._in_flight = Counter[str]()
        self._signal = Signal()

    async def send(self, request: WebhookRequest) -> Answer:
        delivery_id = dict(request.headers)["hymical-delivery"]
        self.requests[delivery_id] += 1
        self._in_flight[request.url] += 1
        self.most[request.url] = max(self.most[request.url], self._in_flight[request.url])
        await self._signal.tell()
        for _ in range(self._dice.choice((0, 1, 3, 40, 200))):
            await asyncio.sleep(0)
        self._in_flight[request.url] -= 1
        took = timedelta(milliseconds=self._dice.choice((1, 50, 200)))
        if self._dice.random() < self._refuses:
            return replace(an_answer(Refused(), 503), duration=took)
        self.accepted[delivery_id] += 1
        return replace(an_answer(Accepted(), 200), duration=took)

    async def have_had(self, requests: int) -> None:
        await self._signal.when(lambda: self.requests.total() >= requests)


class Slots:
    """What one worker has on its way to all receivers, or holds besides, and whether that was ever too much."""

    def __init__(self, receivers: Receivers, number: int) -> None:
        self._receivers = receivers
        self._number = number
        self._taken = 0
        self.in_flight: Callable[[], int] = lambda: 0
        self.were_enough = True

    async def send(self, request: WebhookRequest) -> Answer:
        self._taken += 1
        self.were_enough &= self._taken <= self._number and self.in_flight() <= 2 * self._number
        try:
            return await self._receivers.send(request)
        finally:
            self._taken -= 1


class SlowQueue:
    """Takes a while before and after each call, and so shows old answers to whoever waits for them."""

    def __init__(self, world: World, dice: random.Random) -> None:
        self._queue = world.queue
        self._dice = dice

    async def _in_time(self, call: Callable[[], Awaitable[_Result]]) -> _Result:
        for _ in range(self._dice.choice((0, 2, 20))):
            await asyncio.sleep(0)
        result = await call()
        for _ in range(self._dice.choice((0, 2, 20))):
            await asyncio.sleep(0)
        return result

    async def owe(self, messages: Sequence[Message], deliveries: Sequence[Delivery]) -> None:
        await self._queue.owe(messages, deliveries)

    async def claim(self, *, limit: int, lease: timedelta, making_room: Sequence[Lease] = ()) -> ClaimedBatch:
        return await self._in_time(
            lambda: self._queue.claim(limit=limit, lease=lease, making_room=making_room)
        )

    async def settle(self, settled: Sequence[Settled], *, unless_troubled: bool = False) -> SettleReport:
        return await self._in_time(lambda: self._queue.settle(settled, unless_troubled=unless_troubled))

    async def release(self, leases: Sequence[Lease]) -> None:
        await self._in_time(lambda: self._queue.release(leases))

    def __getattr__(self, name: str) -> object:
        return getattr(self._queue, name)


def a_worker(world: World, receivers: Receivers, dice: random.Random) -> tuple[DeliveryWorker, Slots]:
    queue, ids = SlowQueue(world, dice), SteadyIds()
    concurrency = dice.choice((4, 10, 100))
    slots = Slots(receivers, concurrency)
    worker = DeliveryWorker(
        claim_due=ClaimDue(queue=queue, policy=POLICY, lease=LEASE, clock=world.clock, ids=ids),  # type: ignore[arg-type]
        send=SendDelivery(sender=slots, policy=POLICY, clock=world.clock, ids=ids),
        settle=SettleFinished(
            queue=queue,  # type: ignore[arg-type]
            health=world.health,
            destinations=world.destinations,
            transactions=world.transactions,
            policy=TroublePolicy(opens_after=1_000),
            ids=ids,
        ),
        release=ReleaseUnsent(queue=queue),  # type: ignore[arg-type]
        wakeups=world.wakeups,
        ids=ids,
        pace=Pace(
            poll=timedelta(seconds=0.05),
            batch_size=dice.choice((1, 3, 10)),
            concurrency=concurrency,
            drain=timedelta(seconds=_LONGEST),
        ),
    )
    slots.in_flight = lambda: worker.in_flight
    return worker, slots


@pytest.mark.parametrize("seed", range(40))
async def test_workers_together_send_no_more_at_one_time_than_may_be_and_leave_nothing_behind(
    seed: int,
) -> None:
    dice = random.Random(seed)  # noqa: S311
    world, receivers = memory_world(), Receivers(dice)
    most = {f"https://example.com/{number}": dice.choice((1, 2, 5)) for number in range(dice.choice((1, 3)))}
    owed = [
        delivery
        for url, number in most.items()
        for delivery in await world.owes(_OWED, await world.destination(url, max_in_flight=number))
    ]
    workers = [a_worker(world, receivers, dice) for _ in range(dice.choice((1, 2, 3)))]
    running = [asyncio.create_task(worker.run()) for worker, _ in workers]

    async with asyncio.timeout(_LONGEST):
        # one stops in the middle, and hands back what it holds ahead
        await receivers.have_had(len(owed) // 2)
        workers[0][0].stop()
        workers.append(a_worker(world, receivers, dice))
        running.append(asyncio.create_task(workers[-1][0].run()))
        await receivers.have_had(len(owed))
        for worker, _ in workers:
            worker.stop()
        await asyncio.gather(*running)

    assert all(receivers.most[url] <= number for url, number in most.items())
    assert all(slots.were_enough for _, slots in workers)
    assert set(receivers.requests.values()) == {1}
    states = Counter([(await world.history.get(one.id)).state for one in owed])
    assert states == Counter(
        {
            DeliveryState.DELIVERED: len(receivers.accepted),
            DeliveryState.PENDING: len(owed) - len(receivers.accepted),
        }
    )
