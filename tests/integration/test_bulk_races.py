"""Races of erasures with what makes messages, and the plans of what is sent by the thousand."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from functools import partial

import pytest

from hymical.application.bulk import _Backfill
from hymical.application.forms import EraseSubmission, MarkGood
from hymical.domain.bulk import FailedDeliveries, PastSubmissions, Step, Tally
from hymical.domain.deliveries import Failed, Reason
from hymical.domain.errors import NotFound
from hymical.domain.ids import SubmissionId
from hymical.ports.deliveries import DeliveryFilter, Settled
from tests.builders import LEASE, a_message, a_new_form, a_submission, an_attempt, ids
from tests.clocks import START
from tests.integration.test_queue_races import finished_deliveries, held_open, plan, waits_for_a_lock
from tests.site import Site
from tests.worlds import World, postgres_world

DAY = timedelta(days=1)


@pytest.fixture
async def world(database_url: str) -> AsyncIterator[World]:
    async with postgres_world(database_url) as world:
        yield world


def erasing(world: World) -> EraseSubmission:
    return EraseSubmission(
        submissions=world.submissions,
        queue=world.queue,
        exports=world.exports,
        transactions=world.transactions,
    )


async def test_an_erasure_that_waits_for_a_message_being_made_empties_it(
    world: World, database_url: str, site: Site
) -> None:
    await world.forms.add(a_new_form())
    spam = a_submission(is_spam=True)
    await world.stores([spam])
    mark_good = MarkGood(
        forms=world.forms,
        submissions=world.submissions,
        queue=world.queue,
        # it is called in a transaction that the test holds open
        transactions=_Joined(),
        ids=ids,
    )

    async with held_open(world, partial(mark_good, spam.id)):
        erasure = asyncio.create_task(erasing(world)(spam.id))
        await waits_for_a_lock(database_url)
    await erasure

    assert site.query("SELECT body FROM messages") == [(b"",)]


async def test_an_erasure_that_waits_for_a_back_fill_empties_the_message_that_it_made(
    world: World, database_url: str, site: Site
) -> None:
    destination = await world.destination()
    submission = a_submission()
    await world.stores([submission])
    work = _Backfill(
        which=PastSubmissions(destination_id=destination.id),
        bulk=world.bulk,
        queue=world.queue,
        destinations=world.destinations,
        ids=ids,
    )

    async with held_open(world, partial(work.step, Tally(before=START + DAY))):
        erasure = asyncio.create_task(erasing(world)(submission.id))
        await waits_for_a_lock(database_url)
    await erasure

    assert site.query("SELECT body FROM messages") == [(b"",)]
    with pytest.raises(NotFound):
        await world.submissions.get(submission.id)
    assert not (await world.queue.claim(limit=10, lease=LEASE)).deliveries


async def test_a_back_fill_that_waits_for_an_erasure_sends_nothing_of_it(
    world: World, database_url: str, site: Site
) -> None:
    destination = await world.destination()
    submission = a_submission()
    await world.stores([submission])

    async def past() -> int:
        which = PastSubmissions(destination_id=destination.id)
        return len(await world.bulk.past(which, before=START + DAY, after="", limit=10))

    async with held_open(world, partial(world.submissions.erase, submission.id)):
        walk = asyncio.create_task(past())
        await waits_for_a_lock(database_url)

    assert await walk == 0
    assert site.count("messages") == 0


async def a_failed_one(world: World) -> SubmissionId:
    """The submission of a delivery that was rejected."""
    await world.owes(1)
    (claimed,) = (await world.queue.claim(limit=1, lease=LEASE)).deliveries
    rejected = Settled(
        claimed=claimed, settlement=Failed(reason=Reason.REJECTED), attempt=an_attempt(claimed.lease.number)
    )
    await world.queue.settle([rejected])
    assert claimed.message.submission_id is not None
    return claimed.message.submission_id


def replaying(world: World) -> Callable[[], Awaitable[Step]]:
    return partial(world.bulk.replay, FailedDeliveries(), before=START + DAY, after="", limit=10)


async def test_a_submission_that_is_erased_while_many_are_replayed_is_not_sent_empty(
    world: World, database_url: str
) -> None:
    submission_id = await a_failed_one(world)

    async with held_open(world, replaying(world)) as results:
        erasure = asyncio.create_task(erasing(world)(submission_id))
        await waits_for_a_lock(database_url)
    await erasure

    assert results[0].sent == 1
    assert not (await world.queue.claim(limit=10, lease=LEASE)).deliveries
    (view,) = await world.history.page(DeliveryFilter(), before=None, limit=10)
    assert view.failure_reason is Reason.SUBMISSION_DELETED


async def test_a_replay_of_many_that_waits_for_an_erasure_skips_what_was_erased(
    world: World, database_url: str
) -> None:
    submission_id = await a_failed_one(world)

    async with held_open(
        world,
        partial(world.queue.withdraw_submission, submission_id),
        partial(world.submissions.erase, submission_id),
    ):
        replay = asyncio.ensure_future(replaying(world)())
        await waits_for_a_lock(database_url)

    assert (await replay).skipped == {"submission_deleted": 1}
    assert not (await world.queue.claim(limit=10, lease=LEASE)).deliveries


async def test_of_two_replays_of_many_at_once_only_one_counts_a_delivery(
    world: World, database_url: str
) -> None:
    await a_failed_one(world)

    async with held_open(world, replaying(world)) as results:
        second = asyncio.ensure_future(replaying(world)())
        await waits_for_a_lock(database_url)

    assert (results[0].sent, (await second).sent) == (1, 0)


async def test_a_replay_of_many_reads_no_more_however_many_were_delivered(
    world: World, database_url: str
) -> None:
    destination = await world.destination()
    await world.owes(20, destination)
    claimed = (await world.queue.claim(limit=20, lease=LEASE)).deliveries
    failed = Failed(reason=Reason.EXHAUSTED)
    await world.queue.settle(
        [Settled(claimed=one, settlement=failed, attempt=an_attempt(1)) for one in claimed]
    )
    which = {name: None for name in FailedDeliveries.__slots__ if name != "failed_before"} | {
        "destination_id": destination.id,
        "before": START + DAY,
        "after": "",
    }
    waiting = {"form_id": None, "destination_id": None, "limit": 10}
    statements = [
        partial(plan, database_url, "replay_many", **which, limit=10),
        partial(plan, database_url, "count_failed", **which, limit=10),
        partial(plan, database_url, "count_waiting", **waiting),
    ]
    await finished_deliveries(database_url, world, 2_000)
    before = [await planned() for planned in statements]
    await finished_deliveries(database_url, world, 20_000)
    after = [await planned() for planned in statements]

    for earlier, later in zip(before, after, strict=True):
        assert "Seq Scan" not in later.of("deliveries")
        assert later.touched <= earlier.touched + 40


async def test_a_back_fill_reads_no_more_however_many_submissions_messages_and_deliveries_there_are(
    world: World, database_url: str, site: Site
) -> None:
    submissions = [a_submission() for _ in range(20)]
    destination = await world.destination()
    await world.stores(submissions)
    await world.queue.owe([a_message(one) for one in submissions], [])
    which = {
        "destination_id": destination.id,
        "received_after": None,
        "before": START + DAY,
        "after_at": "-infinity",
        "after_id": "",
        "limit": 10,
    }

    async def more(count: int) -> None:
        await finished_deliveries(database_url, world, count)
        site.execute(
            "INSERT INTO messages SELECT 'evt_' || gen_random_uuid(), type, 'sub_' || gen_random_uuid(), form_id,"
            " body FROM messages, generate_series(1, %s) LIMIT %s",
            count,
            count,
        )
        site.execute(
            "INSERT INTO submissions (id, form_id, received_at, fields, is_spam, fingerprint)"
            " SELECT 'sub_' || gen_random_uuid(), form_id, received_at, fields, is_spam, fingerprint"
            " FROM submissions, generate_series(1, %s) LIMIT %s",
            count,
            count,
        )
        site.execute("VACUUM ANALYZE")

    statements = [partial(plan, database_url, name, **which) for name in ("past_submissions", "count_unowed")]
    await more(2_000)
    before = [await planned() for planned in statements]
    await more(20_000)
    after = [await planned() for planned in statements]

    for earlier, later in zip(before, after, strict=True):
        assert "Seq Scan" not in later.of("messages") | later.of("submissions") | later.of("deliveries")
        assert later.touched <= earlier.touched + 60


class _Joined:
    """The port `Transactions` for what runs within another's."""

    def begin(self) -> contextlib.AbstractAsyncContextManager[None]:
        return contextlib.nullcontext()
