"""What every `RateLimiter` and `SourceKey` promises."""

import random
from collections.abc import Sequence
from datetime import timedelta

import pytest

from hymical.domain.errors import RateLimited
from hymical.domain.limits import RateLimit, Standing
from hymical.ports.limits import Asked, Bucket, Decision
from tests.worlds import World, memory_world

SECOND = timedelta(seconds=1)
TICK = timedelta(microseconds=1)
THREE = RateLimit(requests=3, window=timedelta(seconds=30))
MANY = RateLimit(requests=1_000_000, window=timedelta(days=365))

ZOE, MAX = b"z" * 32, b"m" * 32
CONTACT, ORDERS = b"form:contact", b"form:orders"


def post(
    source: bytes | None = None,
    form: bytes | None = None,
    *,
    of_source: RateLimit = THREE,
    of_form: RateLimit = THREE,
) -> Asked:
    return Asked(
        source=None if source is None else Bucket(key=source, limit=of_source),
        form=None if form is None else Bucket(key=form, limit=of_form),
    )


async def allowed(world: World, *asked: Asked) -> list[bool]:
    return [decision.refusal is None for decision in await world.limiter.spend(asked)]


def told(found: Standing | None) -> tuple[bool, int, timedelta, timedelta]:
    assert found is not None
    return found.allowed, found.remaining, found.reset, found.retry_after


async def test_a_burst_is_allowed_and_not_one_more(world: World) -> None:
    assert await allowed(world, *[post(ZOE)] * 5) == [True, True, True, False, False]
    assert await allowed(world, post(ZOE)) == [False]


async def test_one_after_the_other_is_the_same_as_together(world: World) -> None:
    assert [await allowed(world, post(ZOE)) for _ in range(4)] == [[True], [True], [True], [False]]


async def test_each_is_told_how_its_bucket_stands_after_it(world: World) -> None:
    decisions = await world.limiter.spend([post(ZOE)] * 4)

    assert [told(decision.source) for decision in decisions] == [
        (True, 2, 10 * SECOND, 0 * SECOND),
        (True, 1, 20 * SECOND, 0 * SECOND),
        (True, 0, 30 * SECOND, 0 * SECOND),
        (False, 0, 30 * SECOND, 10 * SECOND),
    ]
    assert {decision.source.limit for decision in decisions if decision.source} == {THREE}
    refusal = decisions[3].refusal
    assert isinstance(refusal, RateLimited)
    assert refusal.retry_after == 10 * SECOND


async def test_a_wait_is_in_whole_seconds_and_true_however_often_one_asks_meanwhile(world: World) -> None:
    await allowed(world, *[post(ZOE)] * 3)
    world.clock.move(TICK)
    (decision,) = await world.limiter.spend([post(ZOE)])
    assert decision.source is not None
    assert decision.source.retry_after == 10 * SECOND

    world.clock.move(10 * SECOND - 2 * TICK)
    assert await allowed(world, *[post(ZOE)] * 10) == [False] * 10
    world.clock.move(TICK)
    assert await allowed(world, *[post(ZOE)] * 2) == [True, False]


async def test_a_bucket_left_alone_is_full_again(world: World) -> None:
    await allowed(world, *[post(ZOE)] * 3)
    world.clock.move(timedelta(days=40))

    assert await allowed(world, *[post(ZOE)] * 4) == [True, True, True, False]


async def test_sources_do_not_spend_each_others(world: World) -> None:
    assert await allowed(world, *[post(ZOE)] * 4, post(MAX)) == [True, True, True, False, True]


async def test_a_forms_limit_counts_all_sources(world: World) -> None:
    posts = [
        post(ZOE, CONTACT),
        post(ZOE, CONTACT),
        post(MAX, CONTACT),
        post(MAX, CONTACT),
        post(MAX, ORDERS),
    ]

    decisions = await world.limiter.spend(posts)

    assert [decision.refusal is None for decision in decisions] == [True, True, True, False, True]
    assert told(decisions[3].source) == (True, 1, 20 * SECOND, 0 * SECOND)
    assert told(decisions[3].form) == (False, 0, 30 * SECOND, 10 * SECOND)


async def test_what_a_source_is_refused_takes_nothing_from_the_form(world: World) -> None:
    flood = await world.limiter.spend(
        [post(ZOE, CONTACT, of_form=RateLimit(requests=4, window=40 * SECOND))] * 9
    )

    assert [decision.refusal is None for decision in flood] == [True] * 3 + [False] * 6
    assert [decision.form is None for decision in flood] == [False] * 3 + [True] * 6
    assert await allowed(world, post(MAX, CONTACT, of_form=RateLimit(requests=4, window=40 * SECOND))) == [
        True
    ]


async def test_what_a_form_refuses_has_spent_the_sources(world: World) -> None:
    await allowed(world, *[post(None, CONTACT)] * 3)

    assert await allowed(world, *[post(ZOE, CONTACT)] * 3) == [False] * 3
    assert await allowed(world, post(ZOE, ORDERS)) == [False]


async def test_without_a_limit_everything_is_allowed(world: World) -> None:
    assert await world.limiter.spend([]) == []
    assert list(await world.limiter.spend([Asked(), Asked()])) == [Decision(), Decision()]
    assert await allowed(world, *[post(ZOE)] * 4, Asked()) == [True, True, True, False, True]


async def test_buckets_may_be_of_different_sizes(world: World) -> None:
    one = RateLimit(requests=1, window=timedelta(days=365))

    assert await allowed(
        world,
        *[post(ZOE, CONTACT, of_source=one, of_form=MANY), post(MAX, CONTACT, of_source=MANY, of_form=MANY)]
        * 2,
    ) == [True, True, False, True]
    world.clock.move(timedelta(days=365) - TICK)
    assert await allowed(world, post(ZOE, of_source=one)) == [False]
    world.clock.move(TICK)
    assert await allowed(world, post(ZOE, of_source=one)) == [True]


async def test_what_is_taken_back_was_not_spent(world: World) -> None:
    with pytest.raises(LookupError):
        async with world.transactions.begin():
            assert await allowed(world, *[post(ZOE, CONTACT)] * 3) == [True] * 3
            raise LookupError

    async with world.transactions.begin():
        assert await allowed(world, *[post(ZOE, CONTACT)] * 4) == [True, True, True, False]
    assert await allowed(world, post(ZOE), post(None, CONTACT)) == [False, False]


async def test_any_run_of_batches_is_decided_as_one_post_after_the_other(world: World) -> None:
    dice, other = random.Random(4), memory_world()  # noqa: S311  # a test that repeats
    keys: Sequence[bytes | None] = [None, *(bytes([number]) * 32 for number in range(6))]
    forms: Sequence[bytes | None] = [None, CONTACT, ORDERS]
    sizes = {
        key: RateLimit(
            requests=dice.randint(1, 7), window=timedelta(microseconds=dice.randint(1, 40_000_000))
        )
        for key in (*keys, *forms)
    }

    for _ in range(60):
        pairs = [(dice.choice(keys), dice.choice(forms)) for _ in range(dice.randint(1, 30))]
        batch = [post(source, form, of_source=sizes[source], of_form=sizes[form]) for source, form in pairs]
        assert list(await world.limiter.spend(batch)) == [
            decision for one in batch for decision in await other.limiter.spend([one])
        ]
        step = timedelta(
            microseconds=dice.choice([0, 1, 1_000_000, dice.randint(0, 20_000_000), 3_600_000_000])
        )
        world.clock.move(step)
        other.clock.move(step)


async def test_the_key_of_sources_is_32_bytes_and_stays(world: World) -> None:
    key = await world.source_key.read()

    assert len(key) == 32
    assert await world.source_key.read() == key
