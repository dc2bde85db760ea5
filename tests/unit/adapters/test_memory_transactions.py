"""Transactions and wake-ups in memory."""

import asyncio

import pytest

from hymical.domain.errors import NotFound
from hymical.domain.ids import FormId
from tests.builders import LEASE, a_form, a_new_form, a_submission
from tests.worlds import memory_world


class Interrupted(BaseException):
    """What is not even an `Exception`."""


@pytest.mark.parametrize("failure", [ValueError, Interrupted, asyncio.CancelledError])
async def test_a_transaction_that_fails_leaves_nothing(failure: type[BaseException]) -> None:
    world = memory_world()
    (before,) = await world.owes()
    submission = a_submission()

    async def changes() -> None:
        async with world.transactions.begin():
            await world.forms.add(a_new_form("survey"))
            await world.stores([submission])
            await world.queue.claim(limit=1, lease=LEASE)
            raise failure

    with pytest.raises(failure):
        await changes()

    with pytest.raises(NotFound):
        await world.forms.get(FormId("survey"))
    with pytest.raises(NotFound):
        await world.submissions.get(submission.id)
    (claimed,) = (await world.queue.claim(limit=1, lease=LEASE)).deliveries
    assert (claimed.delivery.id, claimed.lease.number) == (before.id, 1)


async def test_a_transaction_that_ends_well_keeps_everything() -> None:
    world = memory_world()

    async with world.transactions.begin():
        await world.forms.add(a_new_form())

    assert (await world.forms.get(FormId("contact"))) == a_form()


async def test_after_a_failure_the_next_transaction_can_begin() -> None:
    world = memory_world()
    with pytest.raises(ValueError, match="first"):
        async with world.transactions.begin():
            raise ValueError("first")

    async with world.transactions.begin():
        await world.forms.add(a_new_form())

    assert await world.forms.page(after=None, limit=1)


async def test_transactions_of_several_tasks_take_turns() -> None:
    world, go_on, order = memory_world(), asyncio.Event(), list[str]()

    async def first() -> None:
        async with world.transactions.begin():
            order.append("first begins")
            await go_on.wait()
            order.append("first ends")

    async def second() -> None:
        async with world.transactions.begin():
            order.append("second")

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(first())
        tasks.create_task(second())
        tasks.create_task(asyncio.sleep(0)).add_done_callback(lambda _: go_on.set())

    assert order == ["first begins", "first ends", "second"]


async def test_a_transaction_within_a_transaction_is_a_mistake() -> None:
    world = memory_world()

    async with world.transactions.begin():
        with pytest.raises(RuntimeError):
            async with world.transactions.begin():
                pass


# Wake-ups


async def test_the_bell_rings_at_the_commit_and_not_before() -> None:
    world = memory_world()
    destination = await world.destination()
    async with world.wakeups.deliveries() as bell:
        async with asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(bell.wait(3_600))
            await world.owes(1, destination)
        assert waiting.result()
        assert not await bell.wait(0)


async def test_what_is_rolled_back_rings_no_bell() -> None:
    world = memory_world()
    await world.owes()
    (held,) = (await world.queue.claim(limit=1, lease=LEASE)).deliveries

    async def hands_back_in_vain() -> None:
        async with world.transactions.begin():
            await world.queue.release([held.lease])
            raise ValueError("in vain")

    async with world.wakeups.deliveries() as bell:
        with pytest.raises(ValueError, match="in vain"):
            await hands_back_in_vain()
        assert not await bell.wait(0)


async def test_a_ring_before_the_wait_is_not_missed() -> None:
    world = memory_world()
    async with world.wakeups.deliveries() as bell:
        await world.owes(2)
        assert await bell.wait(3_600)
        assert not await bell.wait(0)


async def test_every_bell_rings() -> None:
    world = memory_world()
    async with world.wakeups.deliveries() as one, world.wakeups.deliveries() as two:
        await world.owes()
        assert await one.wait(3_600)
        assert await two.wait(3_600)


async def test_after_its_block_a_bell_hears_nothing() -> None:
    world = memory_world()
    async with world.wakeups.deliveries() as bell:
        pass
    await world.owes()
    assert not await bell.wait(0)
