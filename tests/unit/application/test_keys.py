"""Keys are shown once, and open the door until they are revoked."""

import pytest

from hymical.application.keys import Authenticate, CreateKey, ListKeys, RevokeKey
from hymical.domain.errors import InvalidValue, NotFound, Unauthorized
from hymical.domain.ids import KeyId
from hymical.domain.keys import is_key_text, key_digest, new_key_text
from hymical.domain.signing import Secret
from hymical.ports.keys import FoundKey
from tests.builders import ids
from tests.clocks import START
from tests.worlds import memory_world


async def test_a_created_key_opens_the_door() -> None:
    keys = memory_world().keys

    key, text = await CreateKey(keys=keys, ids=ids)("CI")

    assert (key.name, key.created_at, key.revoked_at) == ("CI", START, None)
    assert is_key_text(text.reveal())
    assert await Authenticate(keys=keys)(text) == key
    assert await keys.find(key_digest(text)) == FoundKey(key=key, now=START)


async def test_each_key_has_a_text_of_its_own() -> None:
    create = CreateKey(keys=memory_world().keys, ids=ids)

    assert (await create("one"))[1] != (await create("one"))[1]


async def test_a_key_with_an_unusable_name_is_not_stored() -> None:
    keys = memory_world().keys

    with pytest.raises(InvalidValue):
        await CreateKey(keys=keys, ids=ids)("")

    assert not await ListKeys(keys=keys)()


@pytest.mark.parametrize("presented", ["", "Bearer", "hym_live_short", "hym_live_" + "é" * 43, "\ud800"])
async def test_a_malformed_key_opens_nothing(presented: str) -> None:
    with pytest.raises(Unauthorized):
        await Authenticate(keys=memory_world().keys)(Secret(presented))


async def test_an_unknown_key_opens_nothing() -> None:
    keys = memory_world().keys
    await CreateKey(keys=keys, ids=ids)("CI")

    with pytest.raises(Unauthorized):
        await Authenticate(keys=keys)(new_key_text(bytes(32)))


async def test_a_revoked_key_opens_nothing_any_more() -> None:
    world = memory_world()
    key, text = await CreateKey(keys=world.keys, ids=ids)("CI")

    revoked = await RevokeKey(keys=world.keys)(key.id)

    assert revoked.revoked_at == START
    with pytest.raises(Unauthorized):
        await Authenticate(keys=world.keys)(text)
    assert await ListKeys(keys=world.keys)() == [revoked]
    with pytest.raises(NotFound):
        await RevokeKey(keys=world.keys)(KeyId("key_0"))
