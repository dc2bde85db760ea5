"""Where destinations are kept, and which addresses they may have."""

from collections.abc import Sequence
from typing import Protocol

from hymical.domain.destinations import Destination, NewDestination
from hymical.domain.ids import DestinationId, FormId


class DestinationRepository(Protocol):
    async def add(self, destination: NewDestination) -> Destination:
        """Raises `NotFound` when there is no such form."""
        ...

    async def get(self, destination_id: DestinationId) -> Destination:
        """Raises `NotFound`."""
        ...

    async def page(self, form_id: FormId, *, after: str | None, limit: int) -> Sequence[Destination]:
        """A form's destinations by id, those behind `after`, at most `limit`. Raises `NotFound`."""
        ...


class TargetCheck(Protocol):
    async def check(self, url: str) -> None:
        """Whether a webhook may be sent to `url`, as far as that can be known before it is sent.

        Raises:
            InvalidValue: it may not; the rule names the setting that would allow it.
        """
        ...
