"""Every process looks whether the others are there, for as long as it runs."""

import asyncio

import pytest

from hymical.domain.errors import StorageUnavailable
from hymical.entrypoints import watching as module
from hymical.entrypoints.watching import watching

PATIENCE = 5


class Looks:
    """Stands for the use case; the first looks fail as a test says."""

    def __init__(self, *failures: Exception) -> None:
        self._failures = list(failures)
        self.count = 0
        self._changed = asyncio.Condition()

    async def __call__(self) -> None:
        self.count += 1
        async with self._changed:
            self._changed.notify_all()
        if self._failures:
            raise self._failures.pop(0)

    async def reach(self, count: int) -> None:
        async with asyncio.timeout(PATIENCE), self._changed:
            await self._changed.wait_for(lambda: self.count >= count)


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_EVERY_SECONDS", 0.0)


async def test_it_looks_again_and_again_until_the_process_ends() -> None:
    looks = Looks()
    async with watching(looks):
        await looks.reach(3)

    ended_at = looks.count
    await asyncio.sleep(0)
    assert looks.count == ended_at


async def test_a_database_that_is_away_does_not_end_it() -> None:
    looks = Looks(StorageUnavailable(), StorageUnavailable())
    async with watching(looks):
        await looks.reach(4)


async def test_a_fault_is_logged_and_does_not_end_the_process_nor_the_watch(
    caplog: pytest.LogCaptureFixture,
) -> None:
    looks = Looks(ZeroDivisionError())
    async with watching(looks):
        await looks.reach(3)

    assert [record.exc_info is not None for record in caplog.records] == [True]
