"""Wake-ups of those who wait for work."""

from collections.abc import AsyncIterator, Collection
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from hymical.adapters.postgres.listening import listening
from hymical.ports.wakeups import Bell


class PostgresWakeUps:
    """The port `WakeUps`."""

    def __init__(self, database_url: str) -> None:
        self._database_url = database_url

    def deliveries(self) -> AbstractAsyncContextManager[Bell]:
        return self._bell("hymical_deliveries", None)

    def jobs(self, queues: Collection[str]) -> AbstractAsyncContextManager[Bell]:
        return self._bell("hymical_jobs", frozenset(queues))

    @asynccontextmanager
    async def _bell(self, channel: str, about: Collection[str] | None) -> AsyncIterator[Bell]:
        """`about` are the payloads that ring; None for any."""
        bell = Bell()

        def hear(payload: str | None) -> None:
            if payload is None or about is None or payload in about:
                bell.ring()

        async with listening(self._database_url, channel, hear):
            yield bell
