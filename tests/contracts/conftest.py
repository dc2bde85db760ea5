"""Each contract runs on the memory adapters and on the real ones."""

from collections.abc import AsyncIterator

import pytest

from tests.worlds import World, memory_world, postgres_world


@pytest.fixture(params=["memory", "postgres"])
async def world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    if request.param == "memory":
        yield memory_world()
        return
    async with postgres_world(request.getfixturevalue("database_url")) as world:
        yield world
