"""What follows for a destination, and what the operator is told, when attempts fail; on both kinds of adapters."""

import asyncio
import json
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from hymical.application.deliveries import SettleFinished
from hymical.application.destinations import (
    ChangeDestination,
    DeleteDestination,
    RotateSecret,
    SendTest,
    SetOperator,
)
from hymical.domain.deliveries import Delivered, DeliveryState, Failed, Later, Reason, Settlement
from hymical.domain.destinations import Destination, DestinationChange, DestinationState, TroublePolicy
from hymical.domain.errors import NotFound, NotReplayable
from hymical.domain.ids import OPERATOR
from hymical.domain.outcomes import AttemptOutcome
from hymical.domain.signing import Secret, new_signing_secret
from hymical.ports.deliveries import ClaimedDelivery, DeliveryFilter, Settled, Verdict
from tests.builders import LEASE, an_attempt, ids
from tests.worlds import World

POLICY = TroublePolicy()
LATER = Later(delay=timedelta(0))


class AnyTarget:
    async def check(self, url: str) -> None:
        """Every address may be called."""


def settle_finished(world: World) -> SettleFinished:
    return SettleFinished(
        queue=world.queue,
        health=world.health,
        destinations=world.destinations,
        transactions=world.transactions,
        policy=POLICY,
        ids=ids,
    )


def change_destination(world: World) -> ChangeDestination:
    return ChangeDestination(
        destinations=world.destinations,
        queue=world.queue,
        targets=AnyTarget(),
        transactions=world.transactions,
    )


async def with_operator(world: World) -> None:
    set_operator = SetOperator(
        destinations=world.destinations, queue=world.queue, transactions=world.transactions
    )
    await set_operator("https://example.com/alerts", new_signing_secret(ids.secret_bytes()))


async def claim(world: World, limit: int = 10) -> list[ClaimedDelivery]:
    """What is due to other destinations than the operator's; that waits meanwhile."""
    await world.destinations.change(OPERATOR, DestinationChange(state=DestinationState.PAUSED)) if (
        await has_operator(world)
    ) else None
    return list((await world.queue.claim(limit=limit, lease=LEASE)).deliveries)


async def has_operator(world: World) -> bool:
    try:
        await world.destinations.get(OPERATOR)
    except NotFound:
        return False
    return True


async def told(world: World) -> list[dict[str, Any]]:
    """The events stored for the operator, the oldest first."""
    await world.destinations.change(
        OPERATOR, DestinationChange(state=DestinationState.ACTIVE, max_in_flight=1_000)
    )
    batch = await world.queue.claim(limit=1_000, lease=LEASE)
    events = [one for one in batch.deliveries if one.destination.id == OPERATOR]
    await world.queue.release([one.lease for one in batch.deliveries])
    return [json.loads(one.message.body) for one in sorted(events, key=lambda one: one.message.id)]


def ended(
    claimed: Sequence[ClaimedDelivery], settlement: Settlement, outcome: AttemptOutcome, status: int = 500
) -> list[Settled]:
    return [
        Settled(claimed=one, settlement=settlement, attempt=an_attempt(one.lease.number, outcome, status))
        for one in claimed
    ]


async def fails(world: World, destination: Destination, times: int = 1) -> None:
    """That many attempts fail, one after the other, whatever holds the destination."""
    for _ in range(times):
        trouble = (await world.health.lock([destination.id])).destinations[destination.id][1]
        if trouble is not None and trouble.held_until is not None:
            world.clock.move(max(trouble.held_until - world.clock.now(), timedelta(0)))
        claimed = await claim(world, 1)
        assert [one.destination.id for one in claimed] == [destination.id]
        await settle_finished(world)(ended(claimed, LATER, AttemptOutcome.HTTP_ERROR))


async def test_the_breaker_opens_after_five_failures_in_a_row(world: World) -> None:
    destination = await world.destination()
    await world.owes(20, destination)

    await fails(world, destination, 4)
    assert len(await claim(world, 1)) == 1
    await fails(world, destination, 1)

    assert not await claim(world)


async def test_an_open_breaker_lets_one_request_try_and_waits_longer_each_time(world: World) -> None:
    destination = await world.destination()
    await world.owes(20, destination)
    await fails(world, destination, 5)
    pauses = list[timedelta]()
    for _ in range(8):
        trouble = (await world.health.lock([destination.id])).destinations[destination.id][1]
        assert trouble is not None
        assert trouble.held_until is not None
        pauses.append(trouble.held_until - world.clock.now())
        world.clock.move(pauses[-1])
        probe = await claim(world)
        assert len(probe) == 1
        await settle_finished(world)(ended(probe, LATER, AttemptOutcome.TIMEOUT))

    assert timedelta(seconds=8) <= pauses[0] <= timedelta(seconds=12)
    assert timedelta(seconds=16) <= pauses[1] <= timedelta(seconds=24)
    assert timedelta(minutes=4) <= pauses[-1] <= timedelta(minutes=6)


async def test_one_success_closes_the_breaker(world: World) -> None:
    destination = await world.destination()
    await world.owes(20, destination)
    await fails(world, destination, 5)
    world.clock.move(timedelta(minutes=10))

    await settle_finished(world)(ended(await claim(world), Delivered(), AttemptOutcome.SUCCEEDED, 200))

    assert len(await claim(world)) == 10


async def test_failures_that_were_on_their_way_do_not_stretch_the_pause(world: World) -> None:
    destination = await world.destination()
    await world.owes(20, destination)
    first, second = await claim(world, 10), await claim(world, 10)
    await settle_finished(world)(ended(first, LATER, AttemptOutcome.TIMEOUT))
    before = (await world.health.lock([destination.id])).destinations[destination.id][1]

    await settle_finished(world)(ended(second, LATER, AttemptOutcome.TIMEOUT))

    after = (await world.health.lock([destination.id])).destinations[destination.id][1]
    assert before is not None
    assert after is not None
    assert after.held_until == before.held_until
    assert (before.openings, after.openings) == (1, 1)


async def test_faults_on_our_own_side_say_nothing_of_a_destination(world: World) -> None:
    destination = await world.destination()
    await world.owes(10, destination)
    fault = Later(delay=timedelta(hours=1), spends=False)

    await settle_finished(world)(ended(await claim(world), fault, AttemptOutcome.NETWORK_ERROR))

    assert (await world.health.lock([destination.id])).destinations[destination.id][1] is None


async def test_the_operator_is_warned_once_after_a_day_and_told_of_the_recovery(world: World) -> None:
    await with_operator(world)
    destination = await world.destination()
    await world.owes(20, destination)
    await fails(world, destination)
    world.clock.move(timedelta(hours=23, minutes=59))
    await fails(world, destination)
    assert await told(world) == []

    world.clock.move(timedelta(minutes=2))
    await fails(world, destination, 3)
    world.clock.move(timedelta(minutes=10))
    await settle_finished(world)(ended(await claim(world, 1), Delivered(), AttemptOutcome.SUCCEEDED, 200))
    await settle_finished(world)(ended(await claim(world, 1), Delivered(), AttemptOutcome.SUCCEEDED, 200))

    events = await told(world)
    assert [event["type"] for event in events] == ["destination.failing", "destination.recovered"]
    assert events[0]["data"]["destination_id"] == destination.id
    assert events[0]["data"]["url"] == destination.url


async def test_a_destination_that_fails_for_five_days_is_disabled_and_what_waits_fails(world: World) -> None:
    await with_operator(world)
    destination = await world.destination()
    owed = await world.owes(5, destination)
    await fails(world, destination)
    world.clock.move(timedelta(days=5) - timedelta(seconds=1))
    await fails(world, destination)
    assert (await world.destinations.get(destination.id)).state is DestinationState.ACTIVE

    world.clock.move(timedelta(seconds=2))
    await fails(world, destination)

    assert (await world.destinations.get(destination.id)).state is DestinationState.DISABLED
    assert {(await world.history.get(one.id)).failure_reason for one in owed} == {"destination_disabled"}
    assert [event["type"] for event in await told(world)] == ["destination.failing", "destination.disabled"]


async def test_a_success_on_the_last_attempt_never_disables(world: World) -> None:
    await with_operator(world)
    destination = await world.destination()
    await world.owes(5, destination)
    await fails(world, destination)
    world.clock.move(timedelta(days=6))

    await settle_finished(world)(ended(await claim(world, 1), Delivered(), AttemptOutcome.SUCCEEDED, 200))

    assert (await world.destinations.get(destination.id)).state is DestinationState.ACTIVE
    assert await told(world) == []


async def test_gone_disables_at_once_and_later_deliveries_fail_from_the_start(world: World) -> None:
    await with_operator(world)
    destination = await world.destination()
    await world.owes(3, destination)
    gone = Failed(reason=Reason.GONE, disables_destination=True)
    two = await claim(world, 2)

    await settle_finished(world)(ended(two[:1], gone, AttemptOutcome.HTTP_ERROR, 410))
    second = await settle_finished(world)(ended(two[1:], gone, AttemptOutcome.HTTP_ERROR, 410))

    assert second.verdicts == [Verdict.WITHDRAWN]
    disabled = await world.destinations.get(destination.id)
    assert disabled.state is DestinationState.DISABLED
    (owed,) = await world.owes(1, disabled)
    view = await world.history.get(owed.id)
    assert (view.state, view.failure_reason) == (DeliveryState.FAILED, "destination_disabled")
    events = [event["type"] for event in await told(world)]
    assert events.count("destination.disabled") == 1
    assert events.count("delivery.failed") == 1


@pytest.mark.parametrize(
    "reason", [Reason.EXHAUSTED, Reason.REJECTED, Reason.BLOCKED_TARGET, Reason.WORKER_LOST]
)
async def test_a_delivery_that_fails_is_told_without_the_submission_s_values(
    world: World, reason: Reason
) -> None:
    await with_operator(world)
    destination = await world.destination()
    (owed,) = await world.owes(1, destination)

    await settle_finished(world)(ended(await claim(world), Failed(reason=reason), AttemptOutcome.HTTP_ERROR))

    (event,) = await told(world)
    view = await world.history.get(owed.id)
    assert event["type"] == "delivery.failed"
    assert event["data"] == {
        "delivery_id": owed.id,
        "submission_id": view.submission_id,
        "destination_id": destination.id,
        "form_id": "contact",
        "url": destination.url,
        "reason": reason,
    }


async def test_the_operator_s_own_deliveries_raise_no_events(world: World) -> None:
    await with_operator(world)
    await world.owes(1)
    await settle_finished(world)(
        ended(await claim(world), Failed(reason=Reason.REJECTED), AttemptOutcome.HTTP_ERROR, 404)
    )
    await world.destinations.change(OPERATOR, DestinationChange(state=DestinationState.ACTIVE))
    (event,) = (await world.queue.claim(limit=10, lease=LEASE)).deliveries
    assert event.destination.id == OPERATOR

    await settle_finished(world)(
        ended([event], Failed(reason=Reason.REJECTED), AttemptOutcome.HTTP_ERROR, 404)
    )

    assert await told(world) == []


async def test_without_an_operator_nothing_is_stored_for_one(world: World) -> None:
    (owed,) = await world.owes(1)

    await settle_finished(world)(
        ended(await claim(world), Failed(reason=Reason.REJECTED), AttemptOutcome.HTTP_ERROR, 404)
    )

    views = await world.history.page(DeliveryFilter(), before=None, limit=10)
    assert [view.id for view in views] == [owed.id]


async def test_once_alerts_are_switched_off_events_do_not_pile_up(world: World) -> None:
    await with_operator(world)
    set_operator = SetOperator(
        destinations=world.destinations, queue=world.queue, transactions=world.transactions
    )
    await set_operator(None, None)
    await world.owes(1)
    claimed = list((await world.queue.claim(limit=10, lease=LEASE)).deliveries)
    await settle_finished(world)(
        ended(claimed, Failed(reason=Reason.REJECTED), AttemptOutcome.HTTP_ERROR, 404)
    )

    views = await world.history.page(DeliveryFilter(), before=None, limit=10)
    assert [view.destination_id for view in views] == [claimed[0].destination.id]


async def test_an_event_happens_once_however_many_workers_see_the_failure(world: World) -> None:
    await with_operator(world)
    destination = await world.destination()
    await world.owes(8, destination)
    await fails(world, destination)
    world.clock.move(timedelta(hours=25))
    claimed = await claim(world, 8)

    await asyncio.gather(
        *(settle_finished(world)(ended([one], LATER, AttemptOutcome.TIMEOUT)) for one in claimed)
    )

    assert [event["type"] for event in await told(world)] == ["destination.failing"]


# What people do with destinations


async def test_resuming_tries_at_once_even_while_the_breaker_was_open(world: World) -> None:
    destination = await world.destination()
    await world.owes(10, destination)
    await fails(world, destination, 5)
    assert not await claim(world)

    await change_destination(world)(destination.id, DestinationChange(state=DestinationState.ACTIVE))

    assert len(await claim(world)) == 10


async def test_a_delivery_tells_of_the_pause_while_it_lasts_and_no_longer(world: World) -> None:
    destination = await world.destination()
    (owed, *_) = await world.owes(6, destination)
    await fails(world, destination, 5)
    held_until = (await world.history.get(owed.id)).destination_held_until
    assert held_until is not None
    assert held_until > world.clock.now()

    world.clock.move(held_until - world.clock.now())

    assert (await world.history.get(owed.id)).destination_held_until is None


async def test_disabling_fails_what_waits_and_a_replay_after_resuming_sends_it(world: World) -> None:
    destination = await world.destination()
    (owed,) = await world.owes(1, destination)
    await change_destination(world)(destination.id, DestinationChange(state=DestinationState.DISABLED))
    assert (await world.history.get(owed.id)).failure_reason == "destination_disabled"

    with pytest.raises(NotReplayable) as refused:
        await world.queue.replay(owed.id)
    assert (refused.value.state, refused.value.reason) == ("failed", "destination_disabled")

    await change_destination(world)(destination.id, DestinationChange(state=DestinationState.ACTIVE))
    await world.queue.replay(owed.id)

    assert [one.delivery.id for one in await claim(world)] == [owed.id]


async def test_deleting_fails_what_waits_for_good_and_keeps_the_history(world: World) -> None:
    destination = await world.destination()
    (owed,) = await world.owes(1, destination)
    delete = DeleteDestination(
        destinations=world.destinations, queue=world.queue, transactions=world.transactions
    )

    await delete(destination.id)

    view = await world.history.get(owed.id)
    assert (view.failure_reason, view.destination_url) == ("destination_deleted", destination.url)
    with pytest.raises(NotFound):
        await world.destinations.get(destination.id)
    with pytest.raises(NotFound):
        await delete(destination.id)


async def test_a_changed_url_is_where_the_next_attempt_goes(world: World) -> None:
    destination = await world.destination()
    await world.owes(1, destination)

    await change_destination(world)(
        destination.id, DestinationChange(url="https://example.com/new", headers=(), max_in_flight=3)
    )

    (claimed,) = await claim(world)
    assert claimed.destination.url == "https://example.com/new"
    assert (claimed.destination.headers, claimed.destination.max_in_flight) == ((), 3)


async def test_rotating_twice_keeps_both_windows_right(world: World) -> None:
    destination = await world.destination()
    rotate = RotateSecret(destinations=world.destinations, transactions=world.transactions, ids=ids)
    start = world.clock.now()

    _, second = await rotate(destination.id)
    world.clock.move(timedelta(hours=1))
    _, third = await rotate(destination.id, previous_valid_until=world.clock.now() + timedelta(hours=48))

    secrets = (await world.destinations.get(destination.id)).secrets
    assert [(secret.value, secret.valid_until) for secret in secrets] == [
        (destination.secrets[0].value, start + timedelta(hours=24)),
        (second, start + timedelta(hours=49)),
        (third, None),
    ]


async def test_an_end_in_the_past_ends_the_earlier_secrets_at_once(world: World) -> None:
    destination = await world.destination()
    rotate = RotateSecret(destinations=world.destinations, transactions=world.transactions, ids=ids)
    await rotate(destination.id)

    _, newest = await rotate(destination.id, previous_valid_until=world.clock.now() - timedelta(seconds=1))

    secrets = (await world.destinations.get(destination.id)).secrets
    assert [secret.value for secret in secrets if secret.valid_until is None] == [newest]
    assert len(secrets) == 2  # the one whose window an earlier rotation had set keeps it


async def test_a_test_is_a_delivery_like_any_other(world: World) -> None:
    destination = await world.destination()
    test = SendTest(
        destinations=world.destinations,
        queue=world.queue,
        history=world.history,
        transactions=world.transactions,
        ids=ids,
    )

    view = await test(destination.id)

    (claimed,) = await claim(world)
    assert claimed.delivery.id == view.id
    assert json.loads(claimed.message.body)["type"] == "destination.test"
    assert view.submission_id is None


async def test_the_operator_s_destination_follows_the_settings(world: World) -> None:
    set_operator = SetOperator(
        destinations=world.destinations, queue=world.queue, transactions=world.transactions
    )
    first, second = Secret("whsec_" + "a" * 32), Secret("whsec_" + "b" * 32)

    await set_operator(None, None)
    assert not await has_operator(world)
    await set_operator("https://example.com/1", first)
    await set_operator("https://example.com/2", second)
    operator = await world.destinations.get(OPERATOR)
    assert (operator.url, operator.form_id) == ("https://example.com/2", None)
    assert [secret.value for secret in operator.secrets] == [second]
    await set_operator(None, None)
    assert (await world.destinations.get(OPERATOR)).state is DestinationState.DISABLED
