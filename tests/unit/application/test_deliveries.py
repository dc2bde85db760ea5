"""Claiming, sending, settling and replaying."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from standardwebhooks.webhooks import Webhook

from hymical.application.deliveries import (
    ClaimDue,
    ListDeliveries,
    ReleaseUnsent,
    ReplayDelivery,
    SendDelivery,
    SettleFinished,
    ShowDelivery,
)
from hymical.domain.deliveries import Delivered, DeliveryState, Failed, Later, Reason
from hymical.domain.destinations import DestinationChange, DestinationState, TroublePolicy, check_headers
from hymical.domain.errors import InvalidValue, NotFound, NotReplayable
from hymical.domain.ids import DeliveryId
from hymical.domain.outcomes import (
    Accepted,
    Answer,
    AttemptOutcome,
    Gone,
    Outcome,
    Refused,
    Rejected,
    TimedOut,
)
from hymical.domain.signing import Secret, SigningSecret, signature_headers
from hymical.ports.deliveries import ClaimedDelivery, DeliveryFilter, Settled, Verdict, WebhookRequest
from tests.builders import LEASE, POLICY, an_answer, ids
from tests.clocks import START
from tests.worlds import World, memory_world

SECOND = timedelta(seconds=1)
WAIT_OF_FIVE_SECONDS = (timedelta(seconds=4), timedelta(seconds=6))


class Sender:
    """Answers with the next outcome each time; an exception is raised."""

    def __init__(self, *answers: Outcome | Answer | Exception) -> None:
        self._answers = iter(answers)
        self.requests: list[WebhookRequest] = []

    async def send(self, request: WebhookRequest) -> Answer:
        self.requests.append(request)
        match next(self._answers):
            case Answer() as answer:
                return answer
            case Exception() as fault:
                raise fault
            case outcome:
                return an_answer(outcome)


class MisleadingClock:
    """A machine whose own time is wrong; only what passes can be relied on."""

    def __init__(self) -> None:
        self.passed = 0.0

    def now(self) -> datetime:
        return datetime(1999, 12, 31, tzinfo=UTC)

    def monotonic(self) -> float:
        return 7_000.0 + self.passed

    def pinned(self) -> datetime | None:
        return None


def claim_due_of(world: World) -> ClaimDue:
    return ClaimDue(queue=world.queue, policy=POLICY, lease=LEASE, clock=world.clock, ids=ids)


def sending(sender: Sender, clock: MisleadingClock | None = None) -> SendDelivery:
    return SendDelivery(sender=sender, policy=POLICY, clock=clock or MisleadingClock(), ids=ids)


def settle_finished_of(world: World) -> SettleFinished:
    return SettleFinished(
        queue=world.queue,
        health=world.health,
        destinations=world.destinations,
        transactions=world.transactions,
        policy=TroublePolicy(),
        ids=ids,
    )


async def claim_one(world: World) -> ClaimedDelivery:
    (claimed,) = (await claim_due_of(world)(10)).to_send
    return claimed


async def sent(world: World, *answers: Outcome | Answer | Exception) -> Settled:
    """The one delivery that is due, claimed, sent and settled."""
    claimed = await claim_one(world)
    settled = await sending(Sender(*answers))(claimed, 7_000.0)
    assert (await settle_finished_of(world)([settled])).verdicts == [Verdict.SETTLED]
    return settled


# Claiming


async def test_due_deliveries_are_claimed_to_be_sent() -> None:
    world = memory_world()
    owed = await world.owes(2)

    claim = await claim_due_of(world)(10)

    assert [one.delivery.id for one in claim.to_send] == [one.id for one in owed]
    assert (claim.claimed_at, claim.more, claim.given_up) == (world.clock.monotonic(), False, [])


@pytest.mark.parametrize(("limit", "more"), [(1, True), (2, True), (3, False)])
async def test_a_claim_says_whether_more_may_be_due(limit: int, more: bool) -> None:  # noqa: FBT001
    world = memory_world()
    await world.owes(2)

    assert (await claim_due_of(world)(limit)).more is more


async def test_a_delivery_that_lost_its_worker_five_times_in_a_row_is_given_up_and_not_sent() -> None:
    world = memory_world()
    (owed,) = await world.owes()
    for lost in range(5):
        assert (await claim_one(world)).delivery.lost_in_a_row == lost
        world.clock.move(LEASE)

    claim = await claim_due_of(world)(1)

    assert claim.to_send == []
    assert [one.attempt for one in claim.given_up] == [None]
    assert (await world.history.get(owed.id)).state is DeliveryState.PROCESSING
    assert (await settle_finished_of(world)(claim.given_up)).verdicts == [Verdict.SETTLED]
    view, attempts = await ShowDelivery(history=world.history)(owed.id)
    assert (view.state, view.failure_reason) == (DeliveryState.FAILED, "worker_lost")
    assert (view.attempt_count, view.cycle_attempt_count) == (6, 0)
    assert [(one.number, one.outcome) for one in attempts] == [
        (number, AttemptOutcome.LEASE_LOST) for number in range(1, 6)
    ]


async def test_what_was_erased_while_it_was_replayed_is_not_sent_as_an_empty_message() -> None:
    world = memory_world()
    (owed,) = await world.owes(1)
    submission_id = (await world.history.get(owed.id)).submission_id
    assert submission_id is not None
    # an erasure withdraws first; a replay that is committed before it ends is not seen by that
    await world.submissions.erase(submission_id)

    claim = await claim_due_of(world)(10)
    assert not claim.to_send
    assert (await settle_finished_of(world)(claim.given_up)).verdicts == [Verdict.SETTLED]

    view = await world.history.get(owed.id)
    assert (view.state, view.failure_reason) == (DeliveryState.FAILED, Reason.SUBMISSION_DELETED)
    assert await world.history.attempts(owed.id) == []


async def test_one_report_in_between_starts_the_count_afresh() -> None:
    world = memory_world()
    await world.owes()
    for _ in range(4):
        await claim_one(world)
        world.clock.move(LEASE)
    await sent(world, TimedOut())
    world.clock.move(LEASE)
    for _ in range(5):
        await claim_one(world)
        world.clock.move(LEASE)

    claim = await claim_due_of(world)(1)
    assert not claim.to_send
    assert len(claim.given_up) == 1


async def test_one_that_is_given_up_does_not_keep_others_from_being_sent() -> None:
    world = memory_world()
    (poison,) = await world.owes()
    for _ in range(5):
        await claim_one(world)
        world.clock.move(LEASE)
    (healthy,) = await world.owes()

    claim = await claim_due_of(world)(10)

    assert [one.delivery.id for one in claim.to_send] == [healthy.id]
    assert [one.claimed.delivery.id for one in claim.given_up] == [poison.id]
    await settle_finished_of(world)(claim.given_up)
    assert (await world.history.get(poison.id)).state is DeliveryState.FAILED


# Sending


async def test_a_request_is_exactly_this() -> None:
    world = memory_world()
    await world.destination()
    await world.owes()
    claimed, sender = await claim_one(world), Sender(Accepted())

    await sending(sender)(claimed, 7_000.0)

    (request,) = sender.requests
    assert request == WebhookRequest(
        url="https://example.com/hook",
        headers=(
            ("content-type", "application/json"),
            *signature_headers(
                message_id=claimed.message.id,
                at=START,
                body=claimed.message.body,
                secrets=claimed.destination.secrets,
            ),
            ("hymical-delivery", claimed.delivery.id),
            ("hymical-attempt", "1"),
            ("x-api-key", "header value"),
        ),
        body=claimed.message.body,
    )
    assert [name for name, _ in request.headers] == [
        "content-type",
        "webhook-id",
        "webhook-timestamp",
        "webhook-signature",
        "hymical-delivery",
        "hymical-attempt",
        "x-api-key",
    ]


async def test_a_receiver_can_verify_it() -> None:
    world, sender = memory_world(), Sender(Accepted())
    world.clock.move(datetime.now(UTC) - START)
    await world.owes()
    claimed = await claim_one(world)

    await sending(sender)(claimed, 7_000.0)

    (request,), (secret,) = sender.requests, claimed.destination.secrets
    read = Webhook(secret.value.reveal()).verify(request.body, dict(request.headers))
    assert read["data"]["fields"] == {"email": ["zoe@example.com"], "topics": ["billing", "api"]}


async def test_each_attempt_has_its_own_time_and_signature_over_the_same_bytes() -> None:
    world, sender = memory_world(), Sender(Refused(), Accepted())
    await world.owes()
    send, settle = sending(sender), settle_finished_of(world)
    await settle([await send(await claim_one(world), 7_000.0)])
    world.clock.move(timedelta(seconds=10))
    await settle([await send(await claim_one(world), 7_000.0)])

    first, second = (dict(request.headers) for request in sender.requests)
    assert sender.requests[0].body == sender.requests[1].body
    assert first["webhook-id"] == second["webhook-id"]
    assert int(second["webhook-timestamp"]) - int(first["webhook-timestamp"]) == 10
    assert first["webhook-signature"] != second["webhook-signature"]
    assert (first["hymical-attempt"], second["hymical-attempt"]) == ("1", "2")


async def test_what_is_signed_is_the_database_s_time_however_wrong_this_machine_s_clock_is() -> None:
    world, sender, clock = memory_world(), Sender(Accepted()), MisleadingClock()
    await world.owes()
    claimed = await claim_one(world)
    clock.passed = 2.5

    settled = await sending(sender, clock)(claimed, 7_000.0)

    headers = dict(sender.requests[0].headers)
    assert headers["webhook-timestamp"] == str(int(START.timestamp()) + 2)
    assert settled.attempt is not None
    assert settled.attempt.started_at == START + 2.5 * SECOND


async def test_what_was_held_past_its_lease_was_sent_although_another_might_be_sending_it() -> None:
    world, sender, clock = memory_world(), Sender(Accepted()), MisleadingClock()
    (owed,) = await world.owes()
    claimed = await claim_one(world)
    clock.passed = LEASE.total_seconds()

    settled = await sending(sender, clock)(claimed, 7_000.0)
    assert (await settle_finished_of(world)([settled])).verdicts == [Verdict.SETTLED]

    assert sender.requests == []
    view = await world.history.get(owed.id)
    assert (view.state, view.cycle_attempt_count) == (DeliveryState.PENDING, 0)
    assert await world.history.attempts(owed.id) == []
    clock.passed = LEASE.total_seconds() - 0.001
    await sending(sender, clock)(await claim_one(world), 7_000.0)
    assert len(sender.requests) == 1


async def test_the_current_address_and_secrets_of_the_destination_are_used() -> None:
    world, sender = memory_world(), Sender(Accepted())
    await world.owes()
    claimed = await claim_one(world)
    moved = replace(claimed.destination, url="https://example.com/moved")

    await sending(sender)(replace(claimed, destination=moved), 7_000.0)

    assert sender.requests[0].url == "https://example.com/moved"


async def test_what_came_of_it_is_settled_and_recorded() -> None:
    world = memory_world()
    (owed,) = await world.owes()
    answer = Answer(
        outcome=Refused(), duration=SECOND, response_status=503, error="HTTP 503", response_excerpt="later"
    )

    settled = await sent(world, answer)

    assert isinstance(settled.settlement, Later)
    view, (attempt,) = await ShowDelivery(history=world.history)(owed.id)
    assert (view.state, view.cycle_attempt_count) == (DeliveryState.PENDING, 1)
    assert attempt == settled.attempt
    assert (attempt.number, attempt.outcome, attempt.duration) == (1, AttemptOutcome.HTTP_ERROR, SECOND)
    assert (attempt.response_status, attempt.error, attempt.response_excerpt) == (503, "HTTP 503", "later")


async def test_an_accepted_one_is_delivered() -> None:
    world = memory_world()
    (owed,) = await world.owes()

    assert (await sent(world, Accepted())).settlement == Delivered()
    assert (await world.history.get(owed.id)).state is DeliveryState.DELIVERED


@pytest.mark.parametrize(
    ("outcome", "number", "is_shut"),
    [(Accepted(), 1, False), (Refused(), 4, False), (Refused(), 5, True), (Gone(), 1, True)],
)
async def test_a_settlement_says_which_destinations_are_shut(
    outcome: Outcome,
    number: int,
    is_shut: bool,  # noqa: FBT001
) -> None:
    world = memory_world()
    destination = await world.destination()
    await world.owes(number, destination)

    claimed = (await claim_due_of(world)(10)).to_send
    ended = [await sending(Sender(outcome))(one, 7_000.0) for one in claimed]
    settled = await settle_finished_of(world)(ended)

    assert settled.verdicts == [Verdict.SETTLED] * number
    assert set(settled.shut) == ({destination.id} if is_shut else set())


async def test_a_receiver_that_wants_nothing_any_more_is_not_sent_anything_any_more() -> None:
    world = memory_world()
    destination = await world.destination()
    await world.owes(1, destination)

    settled = await sent(world, Gone())

    assert settled.settlement == Failed(reason=Reason.GONE, disables_destination=True)
    assert (await world.destinations.get(destination.id)).state is DestinationState.DISABLED


async def test_a_sender_that_raises_is_our_own_fault_and_spends_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = memory_world()
    (owed,) = await world.owes()

    settled = await sent(world, RuntimeError("at 10.0.0.1: s3cret"))

    assert isinstance(settled.settlement, Later)
    assert not settled.settlement.spends
    assert WAIT_OF_FIVE_SECONDS[0] <= settled.settlement.delay <= WAIT_OF_FIVE_SECONDS[1]
    view, (attempt,) = await ShowDelivery(history=world.history)(owed.id)
    assert (view.state, view.attempt_count, view.cycle_attempt_count) == (DeliveryState.PENDING, 1, 0)
    assert (attempt.outcome, attempt.response_status) == (AttemptOutcome.NETWORK_ERROR, None)
    assert attempt.error == "a fault in Hymical: RuntimeError"
    assert owed.id in caplog.text


async def test_a_secret_that_cannot_sign_is_our_own_fault_too(caplog: pytest.LogCaptureFixture) -> None:
    world, sender = memory_world(), Sender()
    await world.owes()
    claimed = await claim_one(world)
    spoilt = replace(claimed.destination, secrets=(SigningSecret(value=Secret("whsec_s3crét")),))

    settled = await sending(sender)(replace(claimed, destination=spoilt), 7_000.0)

    assert isinstance(settled.settlement, Later)
    assert not settled.settlement.spends
    assert sender.requests == []
    assert "s3cr" not in caplog.text


async def test_a_destination_s_own_headers_are_sent_behind_ours_and_cannot_shadow_them() -> None:
    world, sender = memory_world(), Sender(Accepted())
    await world.owes()
    claimed = await claim_one(world)
    own = (("Authorization", Secret("Bearer s3cret")), ("x-tenant", Secret("7")))

    await sending(sender)(replace(claimed, destination=replace(claimed.destination, headers=own)), 7_000.0)

    (request,) = sender.requests
    assert request.headers[-2:] == (("Authorization", "Bearer s3cret"), ("x-tenant", "7"))
    for name, _ in request.headers[:-2]:
        with pytest.raises(InvalidValue):
            check_headers(((name.upper(), Secret("shadow")),))


async def test_a_410_of_the_address_before_does_not_disable_a_destination_that_was_given_another() -> None:
    world = memory_world()
    await world.owes(1)
    claimed = await claim_one(world)
    await world.destinations.change(
        claimed.destination.id, DestinationChange(url="https://example.com/moved")
    )

    settled = await sending(Sender(Gone()))(claimed, 7_000.0)
    assert (await settle_finished_of(world)([settled])).verdicts == [Verdict.SETTLED]

    assert (await world.history.get(claimed.delivery.id)).failure_reason is Reason.GONE
    assert (await world.destinations.get(claimed.destination.id)).state is DestinationState.ACTIVE


async def test_without_a_readable_secret_nothing_is_sent_and_the_setting_is_named() -> None:
    world, sender = memory_world(), Sender()
    (owed,) = await world.owes()
    claimed = await claim_one(world)
    unreadable = replace(claimed, destination=replace(claimed.destination, secrets=()))

    settled = await sending(sender)(unreadable, 7_000.0)

    assert sender.requests == []
    assert isinstance(settled.settlement, Later)
    assert not settled.settlement.spends
    assert settled.attempt is not None
    assert settled.attempt.error is not None
    assert "FORMS_SECRET_KEY" in settled.attempt.error
    await settle_finished_of(world)([settled])
    assert (await world.history.get(owed.id)).cycle_attempt_count == 0
    assert (await world.health.lock([claimed.destination.id])).destinations[claimed.destination.id][1] is None


async def test_a_fault_of_our_own_took_as_long_as_since_the_attempt_began() -> None:
    world, clock = memory_world(), MisleadingClock()
    await world.owes()
    claimed = await claim_one(world)
    clock.passed = 20.0

    class Slow(Sender):
        async def send(self, request: WebhookRequest) -> Answer:
            clock.passed += 3.0
            return await super().send(request)

    settled = await sending(Slow(RuntimeError()), clock)(claimed, 7_000.0)

    assert settled.attempt is not None
    assert settled.attempt.started_at == START + 20 * SECOND
    assert settled.attempt.duration == 3 * SECOND


# Settling and handing back


async def test_whoever_was_overtaken_is_told_so() -> None:
    world, sender = memory_world(), Sender(Accepted())
    (owed,) = await world.owes()
    overtaken = await claim_one(world)
    world.clock.move(LEASE)
    await claim_one(world)

    late = await settle_finished_of(world)([await sending(sender)(overtaken, 7_000.0)])

    assert late.verdicts == [Verdict.OVERTAKEN]
    assert (await world.history.get(owed.id)).state is DeliveryState.PROCESSING


async def test_what_was_not_sent_is_due_again_at_once() -> None:
    world = memory_world()
    await world.owes(2)
    claim = await claim_due_of(world)(10)

    await ReleaseUnsent(queue=world.queue)(claim.to_send)

    assert len((await claim_due_of(world)(10)).to_send) == 2


# Replaying


async def test_a_failed_delivery_is_replayed_and_shown_as_it_is_then() -> None:
    world = memory_world()
    (owed,) = await world.owes()
    await sent(world, Rejected())
    replay = ReplayDelivery(queue=world.queue, history=world.history)

    view = await replay(owed.id)

    assert (view.state, view.next_attempt_at) == (DeliveryState.PENDING, START)
    assert (view.attempt_count, view.cycle_attempt_count, view.failure_reason) == (1, 0, None)
    with pytest.raises(NotReplayable):
        await replay(owed.id)
    with pytest.raises(NotFound):
        await replay(DeliveryId("dlv_0"))


async def test_deliveries_are_listed_the_newest_first() -> None:
    world = memory_world()
    owed = await world.owes(3)

    views = await ListDeliveries(history=world.history)(DeliveryFilter(), before=None, limit=2)

    assert [view.id for view in views] == [owed[2].id, owed[1].id]
