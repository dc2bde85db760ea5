"""Connections to addresses that egress allowed, kept alive by origin."""

import asyncio
import os
import ssl
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from typing import Generic, Protocol, TypeVar

import certifi

from hymical.adapters.http.answers import (
    LOCAL_FAULTS,
    NotConnectedInTimeError,
    NotHttpError,
    Response,
    Route,
    StaleConnectionError,
)
from hymical.adapters.http.egress import Address, Egress
from hymical.ports.deliveries import WebhookRequest

MOST_IDLE = 512
"""Enough for 200 destinations and 100 requests in flight, each to any of them, under a limit of 1,024 files."""

_IDLE_SECONDS = 30.0

_Stream = TypeVar("_Stream", bound=asyncio.BaseProtocol)
_Request = TypeVar("_Request")
_Asked_contra = TypeVar("_Asked_contra", contravariant=True)


@dataclass(frozen=True, slots=True)
class Origin:
    scheme: str
    host: str
    port: int

    @classmethod
    def of(cls, scheme: str, host: str, port: int | None) -> "Origin":
        return cls(scheme, host, port or (443 if scheme == "https" else 80))


class Connection(Protocol[_Asked_contra]):
    """An HTTP/1.1 connection; `received` counts the bytes of the answer to its latest request."""

    @property
    def received(self) -> int: ...

    async def ask(self, request: _Asked_contra) -> Response:
        """Sends one request, and reads one answer up to the bound.

        Raises:
            OSError: the connection broke.
            NotHttpError: what came back is not the answer.
        """
        ...

    def is_reusable(self) -> bool:
        """Whether it is open, its answer was read to the end, and it holds no byte that nobody asked for."""
        ...

    async def aclose(self) -> None: ...


Dial = Callable[[Address, Origin], Awaitable[Connection[_Request]]]
"""Connects to just this address, whatever the origin's name resolves to by now."""


class Connections(Generic[_Request]):
    """Every connection of a sender. One in use is in nobody's hands but its user's.

    `patience`, in seconds, covers name resolution, TCP and TLS of a new connection.
    """

    def __init__(self, *, egress: Egress, patience: float, most_idle: int, dial: Dial[_Request]) -> None:
        self._egress = egress
        self._patience = patience
        self._dial = dial
        self._idle: _Idle[_Request] = _Idle(most_idle)

    async def exchange(self, origin: Origin, request: _Request, route: Route) -> Response:
        """Raises what `Connection.ask` and `Egress.addresses` raise.

        Also raises `NotConnectedInTimeError`, and `StaleConnectionError` for a kept connection that broke.
        """
        kept = await self._idle.take(origin)
        if kept is not None:
            route.address = kept.address
            try:
                return await self._ask(origin, kept.connection, request, route)
            except (OSError, NotHttpError):
                if kept.connection.received:
                    raise
                # what was kept beside it is hardly better, and asking again must find a new connection
                await self._idle.forget(origin)
                raise StaleConnectionError from None
        return await self._ask(origin, await self._connect(origin, route), request, route)

    async def close(self) -> None:
        await self._idle.close()

    async def _ask(
        self, origin: Origin, connection: Connection[_Request], request: _Request, route: Route
    ) -> Response:
        try:
            return await connection.ask(request)
        finally:
            await self._idle.give(origin, connection, route.address)

    async def _connect(self, origin: Origin, route: Route) -> Connection[_Request]:
        try:
            async with asyncio.timeout(self._patience) as limit:
                addresses = await self._egress.addresses(origin.scheme, origin.host)
                return await self._first_to_answer(addresses, origin, limit.when() or 0, route)
        except TimeoutError:
            raise NotConnectedInTimeError from None

    async def _first_to_answer(
        self, addresses: Sequence[Address], origin: Origin, until: float, route: Route
    ) -> Connection[_Request]:
        """Tries one address after the other, each for its share of the time that is left."""
        clock = asyncio.get_running_loop().time
        failure: OSError = TimeoutError()
        for tried, address in enumerate(addresses):
            route.address = str(address)
            try:
                async with asyncio.timeout((until - clock()) / (len(addresses) - tried)):
                    return await self._dial(address, origin)
            except OSError as error:
                if error.errno in LOCAL_FAULTS:
                    raise
                failure = error
        raise failure


async def open_stream(
    stream: Callable[[], _Stream], address: Address, origin: Origin, tls: ssl.SSLContext
) -> tuple[asyncio.Transport, _Stream]:
    """Connects to an address, and over TLS asks there for the origin's own name."""
    secure = origin.scheme == "https"
    return await asyncio.get_running_loop().create_connection(
        stream,
        host=str(address),
        port=origin.port,
        ssl=tls if secure else None,
        server_hostname=origin.host.removesuffix(".") if secure else None,
    )


@cache
def verifying() -> ssl.SSLContext:
    """Trusts the authorities that `SSL_CERT_FILE` or `SSL_CERT_DIR` names, else certifi's."""
    if file := os.environ.get("SSL_CERT_FILE"):
        return ssl.create_default_context(cafile=file)
    if directory := os.environ.get("SSL_CERT_DIR"):
        return ssl.create_default_context(capath=directory)
    return ssl.create_default_context(cafile=certifi.where())


@cache
def _introduction() -> tuple[tuple[str, str], ...]:
    return (
        ("accept", "*/*"),
        ("accept-encoding", "identity"),
        ("user-agent", f"Hymical/{version('hymical')}"),
    )


def headers_of(request: WebhookRequest) -> list[tuple[str, str]]:
    """Its own headers, and those of the product that it does not give itself."""
    given = {name.lower() for name, _ in request.headers}
    return [*((name, value) for name, value in _introduction() if name not in given), *request.headers]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Kept(Generic[_Request]):
    connection: Connection[_Request]
    address: str | None
    until: float

    def has_expired(self) -> bool:
        return time.monotonic() > self.until or not self.connection.is_reusable()


class _Idle(Generic[_Request]):
    """Connections kept alive by origin, the last used first; those unused for longest are closed first."""

    def __init__(self, most: int) -> None:
        self._by_origin: OrderedDict[Origin, list[_Kept[_Request]]] = OrderedDict()
        self._count = 0
        self._most = most

    async def take(self, origin: Origin) -> _Kept[_Request] | None:
        while idle := self._by_origin.get(origin):
            kept = idle.pop()
            self._forget_one(origin)
            if not kept.has_expired():
                return kept
            await kept.connection.aclose()
        return None

    async def give(self, origin: Origin, connection: Connection[_Request], address: str | None) -> None:
        """Keeps a connection if it can carry another request, else closes it."""
        if not connection.is_reusable():
            await connection.aclose()
            return
        kept = _Kept(connection=connection, address=address, until=time.monotonic() + _IDLE_SECONDS)
        self._by_origin.setdefault(origin, []).append(kept)
        self._by_origin.move_to_end(origin)
        self._count += 1
        while self._by_origin and (self._count > self._most or self._longest_unused()[1].has_expired()):
            await self._close_one()

    async def forget(self, origin: Origin) -> None:
        while (kept := await self.take(origin)) is not None:
            await kept.connection.aclose()

    async def close(self) -> None:
        self._most = 0
        while self._by_origin:
            await self._close_one()

    def _longest_unused(self) -> tuple[Origin, _Kept[_Request]]:
        origin, idle = next(iter(self._by_origin.items()))
        return origin, idle[0]

    async def _close_one(self) -> None:
        origin, unused = self._longest_unused()
        self._by_origin[origin].remove(unused)
        self._forget_one(origin)
        await unused.connection.aclose()

    def _forget_one(self, origin: Origin) -> None:
        self._count -= 1
        if not self._by_origin[origin]:
            del self._by_origin[origin]
