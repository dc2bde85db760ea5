"""The container: everything in it can be built, and any port can be swapped where it is opened."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta

import pytest
from pydantic import SecretStr

from hymical.adapters.memory.deliveries import MemoryDeliveryHistory, MemoryDeliveryQueue
from hymical.adapters.memory.store import MemoryStore
from hymical.adapters.memory.transactions import MemoryWakeUps
from hymical.adapters.system.clock import SystemClock
from hymical.domain.deliveries import DeliveryState
from hymical.domain.forms import Earlier, NewForm, PostedForm, Receipt
from hymical.domain.ids import FormId, SubmissionId
from hymical.domain.outcomes import Accepted, Answer
from hymical.entrypoints.bootstrap.container import Container
from hymical.entrypoints.bootstrap.resources import Role, open_container
from hymical.entrypoints.bootstrap.settings import Settings
from hymical.entrypoints.worker.run import delivery_worker
from hymical.ports.deliveries import DeliveryFilter, DeliveryQueue, WebhookRequest
from hymical.ports.forms import Arrival, SubmissionRepository
from tests.site import Site

CONTACT = FormId("contact")


class RecordingSender:
    """The port `WebhookSender`: keeps what it is given, and says that it was accepted."""

    def __init__(self) -> None:
        self.sent: list[WebhookRequest] = []
        self.something = asyncio.Event()

    async def send(self, request: WebhookRequest) -> Answer:
        self.sent.append(request)
        self.something.set()
        return Answer(outcome=Accepted(), duration=timedelta(milliseconds=1), response_status=200)


class HandingOn:
    """The port `SubmissionRepository` as far as it takes posts in; it owes their deliveries to a queue."""

    def __init__(self, submissions: SubmissionRepository, queue: DeliveryQueue) -> None:
        self._submissions = submissions
        self._queue = queue

    async def receive(self, arrivals: Sequence[Arrival]) -> Mapping[SubmissionId, Earlier]:
        earlier = await self._submissions.receive(
            [replace(one, message=None, deliveries=()) for one in arrivals]
        )
        new = [one for one in arrivals if one.submission.id not in earlier]
        await self._queue.owe(
            [one.message for one in new if one.message], [owed for one in new for owed in one.deliveries]
        )
        return earlier


@pytest.fixture
def settings(database_url: str) -> Settings:
    return Settings(
        database_url=SecretStr(database_url),
        webhook_allowed_networks="127.0.0.0/8",  # type: ignore[arg-type]  # as in the environment
    )


@asynccontextmanager
async def working(container: Container) -> AsyncIterator[None]:
    worker = delivery_worker(container)
    running = asyncio.create_task(worker.run())
    try:
        yield
    finally:
        worker.stop()
        await running


async def accepted(container: Container) -> Receipt:
    (receipt,) = await container.accept_posts()(
        [PostedForm(form_id=CONTACT, pairs=[("email", "a@example.com")])]
    )
    assert isinstance(receipt, Receipt)
    return receipt


@pytest.mark.parametrize("role", Role)
async def test_every_provider_can_be_built(settings: Settings, role: Role) -> None:
    sender = {} if role is Role.WORKER else {"sender": RecordingSender()}
    async with open_container(settings, role, **sender) as container:
        built = {name: provider() for name, provider in container.providers.items()}
    assert len(built) > 30
    assert all(one is not None for one in built.values())


async def test_another_sender_takes_the_place_of_the_real_one(settings: Settings) -> None:
    sender = RecordingSender()
    async with open_container(settings, sender=sender) as container:
        await container.create_form()(NewForm(id=CONTACT, name="Contact"))
        await container.create_destination()(CONTACT, "http://127.0.0.1:9/nobody-listens")
        async with working(container):
            receipt = await accepted(container)
            await asyncio.wait_for(sender.something.wait(), 10)
        (view,) = await container.list_deliveries()(DeliveryFilter(), before=None, limit=10)

    (request,) = sender.sent
    assert request.url == "http://127.0.0.1:9/nobody-listens"
    assert receipt.submission_id.encode() in request.body
    assert view.state is DeliveryState.DELIVERED


async def test_another_queue_takes_the_place_of_postgresqls(settings: Settings, site: Site) -> None:
    store, sender = MemoryStore(), RecordingSender()
    queue = MemoryDeliveryQueue(store, SystemClock())
    async with (
        open_container(settings) as own,
        open_container(
            settings,
            sender=sender,
            queue=queue,
            # PostgreSQL's stores deliveries in the statement that stores submissions; another queue is given them
            submissions=HandingOn(own.submissions(), queue),
            history=MemoryDeliveryHistory(store, SystemClock()),
            wakeups=MemoryWakeUps(store),
        ) as container,
    ):
        await container.create_form()(NewForm(id=CONTACT, name="Contact"))
        destination = await container.create_destination()(CONTACT, "http://127.0.0.1:9/nobody-listens")
        # this queue looks destinations up in its own store
        store.rows.destinations[destination.id] = destination
        async with working(container):
            receipt = await accepted(container)
            await asyncio.wait_for(sender.something.wait(), 10)
        (view,) = await container.list_deliveries()(DeliveryFilter(), before=None, limit=10)

    assert view.state is DeliveryState.DELIVERED
    assert view.submission_id == receipt.submission_id
    assert site.count("submissions") == 1
    assert site.count("deliveries") == site.count("messages") == 0


async def test_a_port_that_does_not_exist_is_refused_by_name(settings: Settings) -> None:
    with pytest.raises(TypeError, match="there is no port called sendr"):
        async with open_container(settings, sendr=RecordingSender()):
            pass
