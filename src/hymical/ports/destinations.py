"""Where destinations are kept, how well they do, and which addresses they may have."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from hymical.domain.destinations import Destination, DestinationChange, NewDestination, Trouble
from hymical.domain.ids import DestinationId, FormId
from hymical.domain.signing import SigningSecret


class DestinationRepository(Protocol):
    """Destinations that were not deleted; the operator's is among them, under its own id, in no form's list."""

    async def add(self, destination: NewDestination) -> Destination:
        """Raises `NotFound` when there is no such form."""
        ...

    async def get(self, destination_id: DestinationId) -> Destination:
        """Raises `NotFound`."""
        ...

    async def page(self, form_id: FormId, *, after: str | None, limit: int) -> Sequence[Destination]:
        """A form's destinations by id, those behind `after`, at most `limit`. Raises `NotFound`."""
        ...

    async def change(self, destination_id: DestinationId, change: DestinationChange) -> Destination:
        """Also ends its trouble, so that what was changed is tried at once. Raises `NotFound`."""
        ...

    async def lock(self, destination_id: DestinationId) -> tuple[Destination, datetime]:
        """A destination that nobody else changes until the transaction ends, and the time. Raises `NotFound`."""
        ...

    async def set_secrets(self, destination_id: DestinationId, secrets: Sequence[SigningSecret]) -> None: ...

    async def delete(self, destination_id: DestinationId) -> None:
        """Keeps it for the history of its deliveries, without secrets. Raises `NotFound`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Troubled:
    """Destinations with what is known of their trouble, locked until the transaction ends."""

    now: datetime
    destinations: Mapping[DestinationId, tuple[Destination, Trouble | None]]


class DestinationHealth(Protocol):
    async def page(
        self, *, after: DestinationId | None, limit: int
    ) -> Sequence[tuple[Destination, Trouble | None]]:
        """Every destination there is, by id, those behind `after`, at most `limit`.

        One whose secrets cannot be opened has none here.
        """
        ...

    async def lock(self, destination_ids: Collection[DestinationId]) -> Troubled:
        """Those that are there, each locked in the order of the ids."""
        ...

    async def save(self, trouble: Mapping[DestinationId, Trouble | None]) -> None:
        """None says that all is well."""
        ...

    async def disable(self, destination_id: DestinationId) -> None: ...


class TargetCheck(Protocol):
    async def check(self, url: str) -> None:
        """Whether a webhook may be sent to `url`, as far as that can be known before it is sent.

        Raises:
            InvalidValue: it may not; the rule names the setting that would allow it.
        """
        ...
