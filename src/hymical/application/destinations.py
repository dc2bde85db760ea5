"""Where the submissions of a form go."""

from collections.abc import Sequence
from dataclasses import dataclass

from hymical.domain.destinations import Destination, NewDestination
from hymical.domain.ids import DestinationId, FormId
from hymical.domain.signing import SigningSecret, new_signing_secret
from hymical.ports.destinations import DestinationRepository, TargetCheck
from hymical.ports.ids import Ids


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateDestination:
    """Adds a destination to a form, with a signing secret of its own that is shown only now.

    Raises:
        InvalidValue: no webhook can, or may, be sent to this address.
        NotFound: there is no such form.
    """

    destinations: DestinationRepository
    targets: TargetCheck
    ids: Ids

    async def __call__(self, form_id: FormId, url: str) -> Destination:
        destination = NewDestination(
            id=self.ids.destination(),
            form_id=form_id,
            url=url,
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
