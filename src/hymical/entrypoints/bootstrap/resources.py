"""Opening what a process needs, and closing it again."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from enum import StrEnum

from dependency_injector.providers import Object

from hymical.adapters.postgres.transactions import create_engine
from hymical.entrypoints.bootstrap.container import Container
from hymical.entrypoints.bootstrap.settings import Settings


class Role(StrEnum):
    """What a process does."""

    API = "api"
    WORKER = "worker"
    OPERATOR = "operator"


_POOL_SIZES = {Role.API: 8, Role.WORKER: 4, Role.OPERATOR: 1}


@asynccontextmanager
async def open_container(
    settings: Settings, role: Role = Role.WORKER, **ports: object
) -> AsyncIterator[Container]:
    """Everything a process is made of, for as long as the block is open.

    `ports` replaces what the container would build, by the name it has there:
    `open_container(settings, sender=RecordingSender(), clock=StoppedClock(...))`. Only a worker opens a sender.
    """
    unknown = ports.keys() - Container.providers.keys()
    if unknown:
        raise TypeError(f"there is no port called {', '.join(sorted(unknown))}")
    async with AsyncExitStack() as stack:
        engine = create_engine(
            settings.database_url.get_secret_value(),
            application_name=f"hymical {role}",
            pool_size=_POOL_SIZES[role],
        )
        stack.push_async_callback(engine.dispose)
        container = Container(settings=Object(settings), engine=Object(engine))
        for name, port in ports.items():
            container.providers[name].override(Object(port))
        if role is Role.WORKER and "sender" not in ports:
            # only a worker sends, and nothing else should have to load an HTTP client
            from hymical.adapters.http.httpx_sender import HttpxWebhookSender  # noqa: PLC0415

            sender = HttpxWebhookSender(
                egress=container.egress(),
                connect_timeout=settings.webhook_connect_timeout_seconds,
                read_timeout=settings.webhook_read_timeout_seconds,
            )
            container.sender.override(Object(await stack.enter_async_context(sender)))
        yield container
