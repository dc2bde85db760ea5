"""Keys that end, and that their owner is warned of it once each time."""

import asyncio
from datetime import datetime, timedelta

import pytest

from hymical.application.keys import Authenticate, CreateKey, ListKeys, RevokeKey, WarnOfExpiringKeys
from hymical.domain.destinations import DestinationChange, DestinationState, NewDestination
from hymical.domain.errors import InvalidValue, Unauthorized
from hymical.domain.ids import OPERATOR
from hymical.ports.deliveries import DeliveryFilter
from tests.builders import LEASE, a_secret, ids
from tests.worlds import World

DAY = timedelta(days=1)


def create(world: World) -> CreateKey:
    return CreateKey(keys=world.keys, ids=ids)


def warn(world: World) -> WarnOfExpiringKeys:
    return WarnOfExpiringKeys(
        warnings=world.key_warnings,
        destinations=world.destinations,
        queue=world.queue,
        transactions=world.transactions,
        ids=ids,
    )


async def operator_is_there(world: World) -> None:
    await world.destinations.add(
        NewDestination(id=OPERATOR, form_id=None, url="https://example.com/ops", secrets=(a_secret(),))
    )


async def told(world: World) -> list[bytes]:
    batch = await world.queue.claim(limit=100, lease=LEASE)
    return [claimed.message.body for claimed in batch.deliveries]


async def test_a_key_ends_when_its_time_is_up(world: World) -> None:
    authenticate = Authenticate(keys=world.keys)
    key, text = await create(world)("CI", expires=90 * DAY)

    assert key.expires_at == world.clock.now() + 90 * DAY
    world.clock.move(90 * DAY - timedelta(microseconds=1))
    assert await authenticate(text) == key
    world.clock.move(timedelta(microseconds=1))
    with pytest.raises(Unauthorized):
        await authenticate(text)
    assert list(await ListKeys(keys=world.keys)()) == [key]


async def test_a_key_may_end_at_an_instant(world: World) -> None:
    at = world.clock.now() + DAY / 7

    key, _ = await create(world)("CI", expires=at)

    assert key.expires_at == at


@pytest.mark.parametrize("late", [timedelta(0), -DAY])
async def test_a_key_that_would_have_expired_is_not_made(world: World, late: timedelta) -> None:
    ends: list[datetime | timedelta] = [late, world.clock.now() + late]
    for expires in ends:
        with pytest.raises(InvalidValue) as refused:
            await create(world)("CI", expires=expires)
        assert refused.value.field == "expires_at"
    assert not await ListKeys(keys=world.keys)()


async def test_keys_are_listed_page_by_page_the_oldest_first(world: World) -> None:
    made = [(await create(world)(name))[0] for name in "abc"]

    listed = ListKeys(keys=world.keys)

    assert list(await listed(limit=2)) == made[:2]
    assert list(await listed(after=made[1].id, limit=2)) == made[2:]


async def test_the_operator_is_told_of_each_threshold_once_over_a_life_of_daily_looks(world: World) -> None:
    await operator_is_there(world)
    await create(world)("endless")
    await create(world)("CI", expires=20 * DAY)
    days_left: list[int] = []
    for day in range(25):
        if await warn(world)():
            days_left.append(20 - day)
        assert not await warn(world)()
        world.clock.move(DAY)

    assert days_left == [14, 7, 3, 1]
    events = await told(world)
    assert len(events) == 4
    for body in events:
        assert b'"type":"key.expiring"' in body
        assert b'"name":"CI","expires_at":"2026-12-19T12:00:00.000000Z"' in body


async def test_none_is_lost_when_days_are_missed(world: World) -> None:
    await create(world)("CI", expires=20 * DAY)
    looks: list[int] = []
    for days in (5, 2, 7, 4, 5, 1):
        world.clock.move(timedelta(days=days))
        looks.append(await warn(world)())

    # 15 days are left, then 13, 6, 2, and it has expired
    assert looks == [0, 1, 1, 1, 1, 0]


async def test_a_revoked_key_is_not_warned_of(world: World) -> None:
    key, _ = await create(world)("CI", expires=20 * DAY)
    await RevokeKey(keys=world.keys)(key.id)
    world.clock.move(19 * DAY)

    assert await warn(world)() == 0


async def test_of_two_that_look_at_once_one_tells(world: World) -> None:
    await operator_is_there(world)
    await create(world)("CI", expires=20 * DAY)
    world.clock.move(8 * DAY)

    assert sorted(await asyncio.gather(*(warn(world)() for _ in range(4)))) == [0, 0, 0, 1]
    assert len(await told(world)) == 1


@pytest.mark.parametrize("named", [True, False], ids=["switched off", "never named"])
async def test_without_an_operator_nothing_is_stored(world: World, named: bool) -> None:  # noqa: FBT001
    if named:
        await operator_is_there(world)
        await world.destinations.change(OPERATOR, DestinationChange(state=DestinationState.DISABLED))
    await create(world)("CI", expires=20 * DAY)
    world.clock.move(8 * DAY)

    assert await warn(world)() == 1
    assert not await world.history.page(DeliveryFilter(), before=None, limit=1)
