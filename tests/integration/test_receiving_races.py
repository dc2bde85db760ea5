"""Batches of posts that repeat each other at the same moment, in separate transactions of a real PostgreSQL."""

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import timedelta

import psycopg
import pytest

from hymical.domain.errors import FormNotFound
from hymical.domain.forms import Submission
from hymical.domain.ids import DestinationId
from hymical.ports.forms import Arrival
from tests.builders import a_delivery, a_message, a_new_destination, a_new_form, a_submission
from tests.integration.test_queue_races import waits_for_a_lock
from tests.site import Site
from tests.worlds import World, postgres_world

WINDOW = timedelta(seconds=10)
STORED = "SELECT count(*), count(DISTINCT duplicate_key), count(DISTINCT idempotency_key) FROM submissions"


@pytest.fixture
async def world(database_url: str) -> AsyncIterator[World]:
    async with postgres_world(database_url) as world:
        await world.forms.add(a_new_form())
        yield world


def arrival(submission: Submission) -> Arrival:
    return Arrival(submission=submission, repeats_since=submission.received_at - WINDOW)


def same(world: World, number: int) -> Submission:
    """An even number is the same by its content, an odd one by the key that its sender gave."""
    post = a_submission(at=world.clock.now())
    if number % 2:
        return replace(post, idempotency_key=f"order-{number}", fingerprint=b"f")
    return replace(post, duplicate_key=number.to_bytes(32), fingerprint=b"f")


async def received(world: World, batch: Sequence[Submission]) -> int:
    """How many of them repeat another."""
    return len(await world.submissions.receive([arrival(one) for one in batch]))


async def test_batches_that_share_posts_in_any_order_neither_wait_in_a_circle_nor_store_any_twice(
    world: World, site: Site
) -> None:
    dice = random.Random(7)  # noqa: S311  it shuffles
    for hour in range(1, 6):
        # from the second hour on each first has to take its key from the one of the hour before
        batches = [[same(world, number) for number in range(24)] for _ in range(8)]
        for batch in batches:
            dice.shuffle(batch)
        repeated = await asyncio.gather(*(received(world, batch) for batch in batches))

        # 12 by content, each hour anew; 12 by keys that were given, once for all time
        assert sum(repeated) == 8 * 24 - (12 if hour > 1 else 24)
        assert site.query(STORED) == [(12 + 12 * hour, 12, 12)]
        world.clock.move(timedelta(hours=1))


async def test_batches_on_both_sides_of_the_end_of_a_window_do_not_wait_in_a_circle(
    world: World, database_url: str, site: Site
) -> None:
    old = same(world, 6)
    await received(world, [old])
    world.clock.move(WINDOW)
    outer, late = same(world, 2), [same(world, number) for number in (2, 4, 6)]
    world.clock.move(-timedelta(milliseconds=1))
    early = [same(world, number) for number in (4, 6)]
    async with await psycopg.AsyncConnection.connect(database_url) as holding:
        await holding.execute(
            "INSERT INTO submissions (id, form_id, received_at, fields, is_spam, fingerprint, duplicate_key)"
            " VALUES (%s, %s, %s, '{}', false, '', %s)",
            [outer.id, outer.form_id, outer.received_at, outer.duplicate_key],
        )
        receiving_late = asyncio.create_task(received(world, late))
        await waits_for_a_lock(database_url)
        # the late one has taken the key of the old one, and has not stored the first of its own
        receiving_early = asyncio.create_task(received(world, early))
        await waits_for_a_lock(database_url, 2)
        await holding.rollback()

    assert (await receiving_late, await receiving_early) == (0, 2)
    assert set(site.query("SELECT id FROM submissions")) == {(one.id,) for one in (old, *late)}


async def test_a_post_whose_delivery_cannot_be_stored_is_not_stored_either(world: World, site: Site) -> None:
    post, other = same(world, 2), same(world, 4)
    message = a_message(post)
    nowhere = replace(a_delivery(message), destination_id=DestinationId("dst_gone"))

    with pytest.raises(FormNotFound):
        await world.submissions.receive(
            [arrival(other), replace(arrival(post), message=message, deliveries=[nowhere])]
        )

    assert site.query("SELECT (SELECT count(*) FROM submissions), (SELECT count(*) FROM messages)") == [
        (0, 0)
    ]


async def test_one_that_repeats_brings_neither_its_message_nor_its_deliveries(
    world: World, site: Site
) -> None:
    destination = await world.destinations.add(a_new_destination())
    first, second = same(world, 2), same(world, 2)
    for post in (first, second):
        message = a_message(post)
        owed = replace(a_delivery(message), destination_id=destination.id)
        await world.submissions.receive([replace(arrival(post), message=message, deliveries=[owed])])

    assert site.query(
        "SELECT submission_id, count(*) FROM messages JOIN deliveries ON message_id = messages.id GROUP BY 1"
    ) == [(first.id, 1)]


async def test_what_repeats_a_submission_that_is_erased_meanwhile_takes_its_place(
    world: World, database_url: str, site: Site
) -> None:
    first, second = same(world, 2), same(world, 2)
    await received(world, [first])
    async with await psycopg.AsyncConnection.connect(database_url) as erasing:
        await erasing.execute("DELETE FROM submissions")
        receiving = asyncio.create_task(received(world, [second]))
        await waits_for_a_lock(database_url)
    assert await receiving == 0
    assert site.query("SELECT id FROM submissions") == [(second.id,)]
