"""Opening what a process needs, and closing it again."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from enum import StrEnum

from dependency_injector.providers import Object

from hymical.adapters.http.egress import Egress
from hymical.adapters.postgres.pool import ConnectionPool
from hymical.entrypoints.bootstrap.container import Container
from hymical.entrypoints.bootstrap.settings import Settings
from hymical.ports.deliveries import WebhookSender


class Role(StrEnum):
    """What a process does."""

    API = "api"
    WORKER = "worker"
    JOB_WORKER = "job worker"
    SCHEDULER = "scheduler"
    OPERATOR = "operator"


_POOL_SIZES = {Role.API: 8, Role.WORKER: 4, Role.JOB_WORKER: 4, Role.SCHEDULER: 2, Role.OPERATOR: 1}
_MOST_HANDLERS_CONNECTED = 16


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
        pool = ConnectionPool(
            settings.database_url.get_secret_value(),
            application_name=f"hymical {role}",
            size=_pool_size(settings, role),
        )
        stack.push_async_callback(pool.close)
        container = Container(settings=Object(settings), pool=Object(pool))
        for name, port in ports.items():
            container.providers[name].override(Object(port))
        if role is Role.WORKER and "sender" not in ports:
            sender = _chosen_sender(settings, container.egress())
            container.sender.override(Object(await stack.enter_async_context(sender)))
        yield container


def _pool_size(settings: Settings, role: Role) -> int:
    """What a process needs itself, and a job worker's handlers besides; opened only as they are used."""
    handlers = settings.job_concurrency if role is Role.JOB_WORKER else 0
    return _POOL_SIZES[role] + min(handlers, _MOST_HANDLERS_CONNECTED)


def _chosen_sender(settings: Settings, egress: Egress) -> AbstractAsyncContextManager[WebhookSender]:
    connect, read = settings.webhook_connect_timeout_seconds, settings.webhook_read_timeout_seconds
    # only a worker sends, and nothing should have to load another HTTP client than its own
    match settings.webhook_sender:
        case "httpx":
            from hymical.adapters.http.httpx_sender import HttpxWebhookSender  # noqa: PLC0415

            return HttpxWebhookSender(egress=egress, connect_timeout=connect, read_timeout=read)
        case "aiohttp":
            from hymical.adapters.http.aiohttp_sender import AiohttpWebhookSender  # noqa: PLC0415

            return AiohttpWebhookSender(egress=egress, connect_timeout=connect, read_timeout=read)
