"""Sending much at once, as a job: replays by filter, and past submissions for a new destination."""

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from hymical.domain.bulk import (
    BATCH,
    CONSENT,
    COUNTED_AT_MOST,
    MOST_WAITING,
    Extent,
    FailedDeliveries,
    PastSubmissions,
    Step,
    Tally,
    consent,
    declined,
    must_ask,
    must_count,
    place_of,
    start,
    wait_for_room,
    wait_until_settled,
)
from hymical.domain.deliveries import owed
from hymical.domain.destinations import DestinationState
from hymical.domain.errors import NotFound
from hymical.domain.jobs import AskHuman, Ending, Finished, GiveUp, RetryLater, SubjectGone
from hymical.domain.messages import submission_message
from hymical.domain.progress import StepStatus
from hymical.ports.bulk import BulkQueue
from hymical.ports.deliveries import DeliveryQueue
from hymical.ports.destinations import DestinationRepository
from hymical.ports.ids import Ids
from hymical.ports.jobs import JobContext
from hymical.ports.transactions import Transactions


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayDeliveries:
    """Starts afresh what failed, batch by batch, each together with the checkpoint that leaves it behind.

    It asks a person before it sends more than `ask_above`, and waits while its destinations have enough to do.
    """

    bulk: BulkQueue
    transactions: Transactions
    ask_above: int

    async def __call__(self, which: FailedDeliveries, context: JobContext) -> Ending:
        work = _Replays(which=which, bulk=self.bulk)
        tally = await _begun(context, until=which.failed_before)
        return await _send(work, tally, context, self.transactions, self.ask_above)


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillDestination:
    """Owes a destination the submissions that its form had before, in the way of `ReplayDeliveries`.

    The message of a submission is the one that others got, with its id and bytes. What the destination has a delivery
    of is not owed again.
    """

    bulk: BulkQueue
    queue: DeliveryQueue
    destinations: DestinationRepository
    transactions: Transactions
    ids: Ids
    ask_above: int

    async def __call__(self, which: PastSubmissions, context: JobContext) -> Ending:
        work = _Backfill(
            which=which, bulk=self.bulk, queue=self.queue, destinations=self.destinations, ids=self.ids
        )
        tally = await _begun(context, until=which.received_before)
        try:
            return await _send(work, tally, context, self.transactions, self.ask_above)
        except NotFound:
            return SubjectGone(what=f"the destination {which.destination_id}")


class _Work(Protocol):
    """What there is to send; `step` is called in a transaction."""

    @property
    def verb(self) -> str: ...

    @property
    def noun(self) -> str: ...

    async def hindrance(self, now: datetime) -> Ending | None: ...

    async def count(self, tally: Tally) -> Extent: ...

    async def step(self, tally: Tally) -> Step: ...

    async def waiting(self) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class _Replays:
    which: FailedDeliveries
    bulk: BulkQueue
    verb = "Replay"
    noun = "deliveries"

    async def hindrance(self, now: datetime) -> Ending | None:  # noqa: ARG002  the port's name for it
        return None

    async def count(self, tally: Tally) -> Extent:
        return await self.bulk.failed(
            self.which, before=tally.before, after=tally.after, limit=COUNTED_AT_MOST
        )

    async def step(self, tally: Tally) -> Step:
        return await self.bulk.replay(self.which, before=tally.before, after=tally.after, limit=BATCH)

    async def waiting(self) -> int:
        return await self.bulk.waiting(
            form_id=self.which.form_id, destination_id=self.which.destination_id, limit=MOST_WAITING
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Backfill:
    which: PastSubmissions
    bulk: BulkQueue
    queue: DeliveryQueue
    destinations: DestinationRepository
    ids: Ids
    verb = "Send"
    noun = "past submissions"

    async def hindrance(self, now: datetime) -> Ending | None:
        destination = await self.destinations.get(self.which.destination_id)
        if destination.state is DestinationState.DISABLED:
            return GiveUp(error="the destination is disabled: resume it, then retry this job")
        young = wait_until_settled(destination.created_at, now)
        if young is None:
            return None
        return RetryLater(after=young, why="posts from before the destination may still be being stored")

    async def count(self, tally: Tally) -> Extent:
        return await self.bulk.unowed(
            self.which, before=tally.before, after=tally.after, limit=COUNTED_AT_MOST
        )

    async def step(self, tally: Tally) -> Step:
        destination, now = await self.destinations.lock(self.which.destination_id)
        past = await self.bulk.past(self.which, before=tally.before, after=tally.after, limit=BATCH)
        unowed = [one for one in past if not one.owed]
        messages = {
            one.submission.id: submission_message(one.submission, self.ids.message())
            for one in unowed
            if one.message_id is None
        }
        deliveries = [
            owed(
                one.message_id or messages[one.submission.id].id,
                destination,
                now=now,
                new_id=self.ids.delivery(),
            )
            for one in unowed
        ]
        if deliveries:
            await self.queue.owe(list(messages.values()), deliveries)
        known = len(past) - len(unowed)
        return Step(
            last=place_of(past[-1].submission) if past else "",
            sent=len(unowed),
            skipped={"already_owed": known} if known else {},
            more=len(past) == BATCH,
        )

    async def waiting(self) -> int:
        return await self.bulk.waiting(
            form_id=None, destination_id=self.which.destination_id, limit=MOST_WAITING
        )


async def _begun(context: JobContext, *, until: datetime | None) -> Tally:
    """How far earlier runs have come; the first one keeps when it began."""
    saved = context.job.checkpoint
    if saved is not None:
        return Tally.of_checkpoint(saved)
    tally = start(context.now, until)
    await context.save(tally.as_checkpoint())
    return tally


async def _send(
    work: _Work, tally: Tally, context: JobContext, transactions: Transactions, ask_above: int
) -> Ending:
    answer = context.job.answers.get(CONSENT)
    if declined(answer):
        return Finished(result={"outcome": "declined", **tally.counts()})
    more = True
    while more:
        if (hindrance := await work.hindrance(context.now)) is not None:
            return hindrance
        if must_count(tally, answer, ask_above=ask_above):
            left = await work.count(tally)
            if must_ask(tally, left, ask_above=ask_above):
                return AskHuman(question=consent(work.verb, work.noun, left))
        if (pause := wait_for_room(await work.waiting())) is not None:
            return RetryLater(after=pause, why="its destinations have enough to do")
        async with transactions.begin():
            step = await work.step(tally)
            tally = tally.plus(step)
            await context.save(tally.as_checkpoint())
            await context.publish(work.verb.lower(), StepStatus.PROGRESS, tally.counts())
        more = step.more
    return Finished(result={"outcome": "done", **tally.counts()})
