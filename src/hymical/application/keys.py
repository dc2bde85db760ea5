"""Keys to the management API."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from hymical.domain.deliveries import fan_out
from hymical.domain.destinations import DestinationState
from hymical.domain.errors import NotFound, Unauthorized
from hymical.domain.ids import OPERATOR, KeyId
from hymical.domain.instants import rfc3339
from hymical.domain.keys import Key, NewKey, is_key_text, key_digest, new_key_text, opens
from hymical.domain.messages import key_expiring_message
from hymical.domain.signing import Secret
from hymical.ports.deliveries import DeliveryQueue
from hymical.ports.destinations import DestinationRepository
from hymical.ports.ids import Ids
from hymical.ports.keys import KeyRepository, KeyWarnings
from hymical.ports.transactions import Transactions

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateKey:
    """Makes a key; its text is given out here and never again.

    Raises:
        InvalidValue: the name cannot be used, or it would have expired already.
    """

    keys: KeyRepository
    ids: Ids

    async def __call__(self, name: str, *, expires: datetime | timedelta | None = None) -> tuple[Key, Secret]:
        text = new_key_text(self.ids.secret_bytes())
        new = NewKey(id=self.ids.key(), name=name, digest=key_digest(text), expires=expires)
        return await self.keys.add(new), text


@dataclass(frozen=True, slots=True, kw_only=True)
class ListKeys:
    """The oldest first, revoked and expired ones too."""

    keys: KeyRepository

    async def __call__(self, *, after: str | None = None, limit: int | None = None) -> Sequence[Key]:
        return await self.keys.page(after=after, limit=limit)


@dataclass(frozen=True, slots=True, kw_only=True)
class RevokeKey:
    """Ends a key at once; may be repeated. Raises `NotFound`."""

    keys: KeyRepository

    async def __call__(self, key_id: KeyId) -> Key:
        return await self.keys.revoke(key_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Authenticate:
    """Whose key this is.

    Raises:
        Unauthorized: the same for a malformed, an unknown, a revoked and an expired one.
    """

    keys: KeyRepository

    async def __call__(self, presented: Secret) -> Key:
        if not is_key_text(presented.reveal()):
            raise Unauthorized
        found = await self.keys.find(key_digest(presented))
        if found is None or not opens(found.key, found.now):
            raise Unauthorized
        return found.key


@dataclass(frozen=True, slots=True, kw_only=True)
class WarnOfExpiringKeys:
    """Tells the operator of keys that expire soon, each time once; gives how many it told of.

    What is due is taken in the transaction that stores the events, so that none is lost and none is told twice.
    """

    warnings: KeyWarnings
    destinations: DestinationRepository
    queue: DeliveryQueue
    transactions: Transactions
    ids: Ids

    async def __call__(self) -> int:
        async with self.transactions.begin():
            due = await self.warnings.take()
            messages = [key_expiring_message(key, self.ids.message(), due.now) for key in due.keys]
            try:
                operator = await self.destinations.get(OPERATOR)
            except NotFound:
                operator = None
            if messages and operator is not None and operator.state is not DestinationState.DISABLED:
                owed = [
                    delivery
                    for message in messages
                    for delivery in fan_out(message, [operator], now=due.now, new_id=self.ids.delivery)
                ]
                await self.queue.owe(messages, owed)
        for key in due.keys:
            assert key.expires_at is not None  # noqa: S101  that is why it is here
            _log.warning("key.expiring: %s (%s) at %s", key.id, key.name, rfc3339(key.expires_at))
        return len(due.keys)
