"""Destinations, and how well they do, in memory."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from hymical.adapters.memory.store import MemoryStore
from hymical.domain.destinations import (
    Destination,
    DestinationChange,
    DestinationState,
    NewDestination,
    Trouble,
)
from hymical.domain.errors import NotFound
from hymical.domain.ids import DestinationId, FormId
from hymical.domain.signing import SigningSecret
from hymical.ports.clock import Clock
from hymical.ports.destinations import Troubled


class MemoryDestinationRepository:
    def __init__(self, store: MemoryStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def add(self, destination: NewDestination) -> Destination:
        if destination.form_id is not None and destination.form_id not in self._store.rows.forms:
            raise NotFound("form", destination.form_id)
        stored = Destination(
            id=destination.id,
            form_id=destination.form_id,
            url=destination.url,
            state=DestinationState.ACTIVE,
            secrets=destination.secrets,
            headers=destination.headers,
            max_in_flight=destination.max_in_flight,
            created_at=self._clock.now(),
        )
        self._store.rows.destinations[stored.id] = stored
        return stored

    async def get(self, destination_id: DestinationId) -> Destination:
        try:
            return self._store.rows.destinations[destination_id]
        except KeyError:
            raise NotFound("destination", destination_id) from None

    async def page(self, form_id: FormId, *, after: str | None, limit: int) -> Sequence[Destination]:
        if form_id not in self._store.rows.forms:
            raise NotFound("form", form_id)
        found = [
            destination
            for destination_id, destination in sorted(self._store.rows.destinations.items())
            if destination.form_id == form_id and (after is None or destination_id > after)
        ]
        return found[:limit]

    async def change(self, destination_id: DestinationId, change: DestinationChange) -> Destination:
        known = await self.get(destination_id)
        changed = replace(
            known,
            url=known.url if change.url is None else change.url,
            headers=known.headers if change.headers is None else change.headers,
            max_in_flight=known.max_in_flight if change.max_in_flight is None else change.max_in_flight,
            state=known.state if change.state is None else change.state,
        )
        self._store.rows.destinations[destination_id] = changed
        self._store.rows.trouble.pop(destination_id, None)
        return changed

    async def lock(self, destination_id: DestinationId) -> tuple[Destination, datetime]:
        return await self.get(destination_id), self._clock.now()

    async def set_secrets(self, destination_id: DestinationId, secrets: Sequence[SigningSecret]) -> None:
        known = await self.get(destination_id)
        self._store.rows.destinations[destination_id] = replace(known, secrets=tuple(secrets))

    async def delete(self, destination_id: DestinationId) -> None:
        known = await self.get(destination_id)
        del self._store.rows.destinations[destination_id]
        self._store.rows.deleted[destination_id] = replace(known, secrets=(), headers=())
        self._store.rows.trouble.pop(destination_id, None)


class MemoryDestinationHealth:
    def __init__(self, store: MemoryStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def page(
        self, *, after: DestinationId | None, limit: int
    ) -> Sequence[tuple[Destination, Trouble | None]]:
        rows = self._store.rows
        behind = [one for one in sorted(rows.destinations) if after is None or one > after]
        return [(rows.destinations[one], rows.trouble.get(one)) for one in behind[:limit]]

    async def lock(self, destination_ids: Collection[DestinationId]) -> Troubled:
        rows = self._store.rows
        return Troubled(
            now=self._clock.now(),
            destinations={
                destination_id: (rows.destinations[destination_id], rows.trouble.get(destination_id))
                for destination_id in sorted(destination_ids)
                if destination_id in rows.destinations
            },
        )

    async def save(self, trouble: Mapping[DestinationId, Trouble | None]) -> None:
        for destination_id, left in trouble.items():
            if left is None:
                self._store.rows.trouble.pop(destination_id, None)
            else:
                self._store.rows.trouble[destination_id] = left

    async def disable(self, destination_id: DestinationId) -> None:
        known = self._store.rows.destinations[destination_id]
        self._store.rows.destinations[destination_id] = replace(known, state=DestinationState.DISABLED)
