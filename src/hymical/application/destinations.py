"""Where the submissions of a form go."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from hymical.domain.deliveries import Reason, fan_out
from hymical.domain.destinations import (
    DEFAULT_MAX_IN_FLIGHT,
    Destination,
    DestinationChange,
    DestinationState,
    Headers,
    NewDestination,
    rotated,
)
from hymical.domain.errors import AlreadyExists, NotFound
from hymical.domain.ids import OPERATOR, DeliveryId, DestinationId, FormId
from hymical.domain.messages import destination_test_message
from hymical.domain.signing import Secret, SigningSecret, new_signing_secret
from hymical.ports.deliveries import DeliveryHistory, DeliveryQueue, DeliveryView
from hymical.ports.destinations import DestinationRepository, TargetCheck
from hymical.ports.ids import Ids
from hymical.ports.transactions import Transactions

ROTATION_OVERLAP = timedelta(hours=24)
"""How long the secrets before a rotation still sign, unless the rotation says otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateDestination:
    """Adds a destination to a form, with a signing secret of its own that is shown only now.

    Raises:
        InvalidValue: no webhook can, or may, be sent to this address, or a header cannot be set.
        NotFound: there is no such form.
    """

    destinations: DestinationRepository
    targets: TargetCheck
    ids: Ids

    async def __call__(
        self,
        form_id: FormId,
        url: str,
        *,
        headers: Headers = (),
        max_in_flight: int = DEFAULT_MAX_IN_FLIGHT,
    ) -> Destination:
        destination = NewDestination(
            id=self.ids.destination(),
            form_id=form_id,
            url=url,
            headers=headers,
            max_in_flight=max_in_flight,
            secrets=(SigningSecret(value=new_signing_secret(self.ids.secret_bytes())),),
        )
        await self.targets.check(url)
        return await self.destinations.add(destination)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowDestination:
    """Raises `NotFound`."""

    destinations: DestinationRepository

    async def __call__(self, destination_id: DestinationId) -> Destination:
        return await self.destinations.get(destination_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListDestinations:
    """Raises `NotFound` when there is no such form."""

    destinations: DestinationRepository

    async def __call__(self, form_id: FormId, *, after: str | None, limit: int) -> Sequence[Destination]:
        return await self.destinations.page(form_id, after=after, limit=limit)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeDestination:
    """Changes, pauses, resumes or disables a destination; its breaker closes, so that the change is tried at once.

    Disabling fails what waits for it, as `destination_disabled`. Waking it up is left to the next poll.

    Raises:
        InvalidValue: no webhook can, or may, be sent to the new address.
        NotFound: there is no such destination.
    """

    destinations: DestinationRepository
    queue: DeliveryQueue
    targets: TargetCheck
    transactions: Transactions

    async def __call__(self, destination_id: DestinationId, change: DestinationChange) -> Destination:
        if change.url is not None:
            await self.targets.check(change.url)
        async with self.transactions.begin():
            destination = await self.destinations.change(destination_id, change)
            if change.state is DestinationState.DISABLED:
                await self.queue.withdraw_from(destination_id, Reason.DESTINATION_DISABLED)
        return destination


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteDestination:
    """Deletes a destination and fails what waits for it, as `destination_deleted`. Raises `NotFound`."""

    destinations: DestinationRepository
    queue: DeliveryQueue
    transactions: Transactions

    async def __call__(self, destination_id: DestinationId) -> None:
        async with self.transactions.begin():
            await self.destinations.delete(destination_id)
            await self.queue.withdraw_from(destination_id, Reason.DESTINATION_DELETED)


@dataclass(frozen=True, slots=True, kw_only=True)
class RotateSecret:
    """Gives a destination a new signing secret, shown only now; earlier ones go on signing until their end.

    Without `previous_valid_until` that is 24 hours from now; an instant in the past ends it at once.

    Raises:
        NotFound: there is no such destination.
        SecretUnreadable: its secrets cannot be opened, and so cannot be kept beside the new one.
    """

    destinations: DestinationRepository
    transactions: Transactions
    ids: Ids

    async def __call__(
        self, destination_id: DestinationId, *, previous_valid_until: datetime | None = None
    ) -> tuple[Destination, Secret]:
        new = new_signing_secret(self.ids.secret_bytes())
        async with self.transactions.begin():
            destination, now = await self.destinations.lock(destination_id)
            secrets = rotated(
                destination.secrets,
                new,
                previous_valid_until=previous_valid_until or now + ROTATION_OVERLAP,
                now=now,
            )
            await self.destinations.set_secrets(destination_id, secrets)
        return destination, new


@dataclass(frozen=True, slots=True, kw_only=True)
class SendTest:
    """Queues a `destination.test` message, sent and retried like any other. Raises `NotFound`."""

    destinations: DestinationRepository
    queue: DeliveryQueue
    history: DeliveryHistory
    transactions: Transactions
    ids: Ids

    async def __call__(self, destination_id: DestinationId) -> DeliveryView:
        async with self.transactions.begin():
            destination, now = await self.destinations.lock(destination_id)
            message = destination_test_message(destination, self.ids.message(), now)
            (owed,) = fan_out(message, [destination], now=now, new_id=self.ids.delivery)
            await self.queue.owe([message], [owed])
        return await self.history.get(DeliveryId(owed.id))


@dataclass(frozen=True, slots=True, kw_only=True)
class SetOperator:
    """Makes the operator's destination what the settings say, so that events are sent there; None ends that."""

    destinations: DestinationRepository
    queue: DeliveryQueue
    transactions: Transactions

    async def __call__(self, url: str | None, secret: Secret | None) -> None:
        try:
            await self._set(url, secret)
        except AlreadyExists:
            # of workers that start together, one makes it and the others find it
            await self._set(url, secret)

    async def _set(self, url: str | None, secret: Secret | None) -> None:
        async with self.transactions.begin():
            try:
                operator, _ = await self.destinations.lock(OPERATOR)
            except NotFound:
                operator = None
            if url is None or secret is None:
                if operator is not None:
                    off = DestinationChange(state=DestinationState.DISABLED)
                    await self.destinations.change(OPERATOR, off)
                    await self.queue.withdraw_from(OPERATOR, Reason.DESTINATION_DISABLED)
                return
            secrets = (SigningSecret(value=secret),)
            if operator is None:
                await self.destinations.add(
                    NewDestination(id=OPERATOR, form_id=None, url=url, secrets=secrets)
                )
                return
            if (operator.url, operator.state, operator.secrets) != (url, DestinationState.ACTIVE, secrets):
                await self.destinations.change(
                    OPERATOR, DestinationChange(url=url, state=DestinationState.ACTIVE)
                )
                await self.destinations.set_secrets(OPERATOR, secrets)
