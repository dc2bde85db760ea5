"""Destinations in memory."""

from collections.abc import Sequence

from hymical.adapters.memory.store import MemoryStore
from hymical.domain.destinations import Destination, DestinationState, NewDestination
from hymical.domain.errors import NotFound
from hymical.domain.ids import DestinationId, FormId
from hymical.ports.clock import Clock


class MemoryDestinationRepository:
    def __init__(self, store: MemoryStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def add(self, destination: NewDestination) -> Destination:
        if destination.form_id not in self._store.rows.forms:
            raise NotFound("form", destination.form_id)
        stored = Destination(
            id=destination.id,
            form_id=destination.form_id,
            url=destination.url,
            state=DestinationState.ACTIVE,
            secrets=destination.secrets,
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
