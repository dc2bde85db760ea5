"""A destination is added where a webhook may be sent to."""

import pytest

from hymical.application.destinations import CreateDestination, ListDestinations, ShowDestination
from hymical.domain.destinations import DestinationState
from hymical.domain.errors import InvalidValue, NotFound
from hymical.domain.ids import FormId
from tests.builders import a_new_form, ids
from tests.worlds import World, memory_world

CONTACT = FormId("contact")


class TargetsOnly:
    """Allows one address."""

    def __init__(self, allowed: str) -> None:
        self._allowed = allowed
        self.asked: list[str] = []

    async def check(self, url: str) -> None:
        self.asked.append(url)
        if url != self._allowed:
            raise InvalidValue("url", "is not public; FORMS_WEBHOOK_ALLOWED_NETWORKS would allow it")


async def a_world_with_a_form() -> World:
    world = memory_world()
    await world.forms.add(a_new_form())
    return world


async def test_a_destination_is_active_and_has_a_secret_of_its_own() -> None:
    world, targets = await a_world_with_a_form(), TargetsOnly("https://example.com")
    create = CreateDestination(destinations=world.destinations, targets=targets, ids=ids)

    one, two = await create(CONTACT, "https://example.com"), await create(CONTACT, "https://example.com")

    assert (one.form_id, one.url, one.state) == (CONTACT, "https://example.com", DestinationState.ACTIVE)
    (secret,), (other) = one.secrets, two.secrets
    assert secret.value.reveal().startswith("whsec_")
    assert (secret.valid_until, secret in other) == (None, False)
    assert targets.asked == ["https://example.com"] * 2
    assert await ShowDestination(destinations=world.destinations)(one.id) == one
    listed = await ListDestinations(destinations=world.destinations)(CONTACT, after=None, limit=10)
    assert listed == [one, two]


@pytest.mark.parametrize("url", ["https://169.254.169.254/", "ftp://example.com"])
async def test_an_address_that_may_not_be_called_is_refused_and_nothing_is_stored(url: str) -> None:
    world = await a_world_with_a_form()
    create = CreateDestination(
        destinations=world.destinations, targets=TargetsOnly("https://example.com"), ids=ids
    )

    with pytest.raises(InvalidValue) as refusal:
        await create(CONTACT, url)

    assert refusal.value.field == "url"
    assert not await world.destinations.page(CONTACT, after=None, limit=10)


async def test_an_address_that_is_none_is_not_looked_up() -> None:
    world, targets = await a_world_with_a_form(), TargetsOnly("")

    with pytest.raises(InvalidValue):
        await CreateDestination(destinations=world.destinations, targets=targets, ids=ids)(CONTACT, "")

    assert targets.asked == []


async def test_a_form_that_is_not_there_gets_no_destination() -> None:
    create = CreateDestination(
        destinations=memory_world().destinations, targets=TargetsOnly("https://example.com"), ids=ids
    )

    with pytest.raises(NotFound) as refusal:
        await create(CONTACT, "https://example.com")
    assert (refusal.value.kind, refusal.value.id) == ("form", "contact")
