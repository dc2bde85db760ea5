"""Sends webhooks with httpx and httpcore, each connection made to an address that egress allowed."""

import asyncio
import errno
import os
import ssl
import time
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from importlib.metadata import version
from typing import Any, Self, SupportsIndex

import httpcore
import httpx

from hymical.adapters.http.egress import (
    Address,
    Egress,
    EgressError,
    NameNotFoundError,
    ResolverFailingError,
)
from hymical.domain.deliveries import (
    Accepted,
    Answer,
    Blocked,
    Outcome,
    OwnFault,
    TimedOut,
    Unreachable,
    judge_status,
)
from hymical.domain.retries import parse_retry_after
from hymical.ports.deliveries import WebhookRequest

_BODY_READ = 16 * 1024
_LONGEST_ANSWER = 256 * 1024
_LONGEST_EXCERPT = 1_024
_LONGEST_ERROR = 500
_LONGEST_LOCATION = 300

_MOST_IDLE = 256
_IDLE_SECONDS = 30.0

_LOCAL_FAULTS = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}


class HttpxWebhookSender:
    """The port `WebhookSender`. Open it as an async context manager; it closes idle connections at the end.

    httpx writes the request and httpcore carries it, without a client in between: a client would keep
    cookies, refuse an odd `Location`, and search all connections for each request.

    `connect_timeout` covers name resolution, TCP and TLS; together with `read_timeout` it is the hard
    deadline of an attempt. `tls` replaces the verifying default, which trusts certifi's authorities or
    those that `SSL_CERT_FILE` names.
    """

    def __init__(
        self,
        *,
        egress: Egress,
        connect_timeout: timedelta,
        read_timeout: timedelta,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._egress = egress
        self._connect_timeout = connect_timeout.total_seconds()
        self._deadline = (connect_timeout + read_timeout).total_seconds()
        self._tls = tls or _verifying()
        self._idle = _IdleConnections()
        self._headers = {
            "accept": "*/*",
            "accept-encoding": "identity",
            "user-agent": f"Hymical/{version('hymical')}",
        }

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._idle.close()

    async def send(self, request: WebhookRequest) -> Answer:
        started = time.monotonic()
        try:
            async with asyncio.timeout(self._deadline):
                response = await self._exchange(self._written(request))
            return response.answer(_since(started))
        except Exception as error:  # noqa: BLE001 - whatever fails is an answer, so that a worker goes on
            outcome, words = self._failure(error)
            return Answer(outcome=outcome, duration=_since(started), error=_one_line(words, _LONGEST_ERROR))

    def _written(self, request: WebhookRequest) -> httpx.Request:
        given = {name.lower() for name, _ in request.headers}
        own = [(name, value) for name, value in self._headers.items() if name not in given]
        return httpx.Request("POST", request.url, headers=[*own, *request.headers], content=request.body)

    async def _exchange(self, request: httpx.Request) -> "_Response":
        origin = _Origin.of(request.url)
        kept = await self._idle.take(origin)
        if kept is not None:
            try:
                return await self._ask(kept, request)
            except (OSError, httpcore.RemoteProtocolError):
                # the receiver may have closed it while it was idle; a new connection tells
                if kept.stream.received:
                    raise
        return await self._ask(await self._connect(origin), request)

    async def _ask(self, connection: "_Connection", request: httpx.Request) -> "_Response":
        try:
            response = await connection.http.handle_async_request(connection.carried(request))
            if not connection.stream.received:
                raise httpcore.RemoteProtocolError("it was there before the request was sent")
            return _Response(
                status=response.status, headers=response.headers, body=await _beginning(response)
            )
        finally:
            await self._idle.give(connection)

    async def _connect(self, origin: "_Origin") -> "_Connection":
        try:
            async with asyncio.timeout(self._connect_timeout) as limit:
                addresses = await self._egress.addresses(origin.scheme, origin.host)
                stream = await self._first_to_answer(addresses, origin, limit.when() or 0)
        except TimeoutError:
            raise _NotConnectedInTimeError from None
        return _Connection(
            origin=origin,
            stream=stream,
            http=httpcore.AsyncHTTP11Connection(origin.carried(), stream, keepalive_expiry=_IDLE_SECONDS),
        )

    async def _first_to_answer(
        self, addresses: Sequence[Address], origin: "_Origin", until: float
    ) -> "_Stream":
        """Tries one address after the other, each for its share of the time that is left."""
        clock = asyncio.get_running_loop().time
        failure: OSError = TimeoutError()
        for tried, address in enumerate(addresses):
            try:
                async with asyncio.timeout((until - clock()) / (len(addresses) - tried)):
                    return await _Stream.to(address, origin, self._tls)
            except OSError as error:
                if error.errno in _LOCAL_FAULTS:
                    raise
                failure = error
        raise failure

    def _failure(self, error: Exception) -> tuple[Outcome, str]:
        match error:
            case EgressError() | httpx.InvalidURL():
                return _without_target(error)
            case _NotConnectedInTimeError():
                return TimedOut(), f"no connection within {self._connect_timeout:g} s"
            case TimeoutError(errno=None):
                return TimedOut(), f"the total deadline of {self._deadline:g} s passed"
            case OSError():
                return _broken_off(error)
            case httpcore.RemoteProtocolError():
                return Unreachable(), f"no valid HTTP answer: {error}"
            case _:
                # its message may quote a header, and headers hold secrets
                return OwnFault(), f"unexpected {type(error).__name__}"


def _without_target(error: EgressError | httpx.InvalidURL) -> tuple[Outcome, str]:
    match error:
        case NameNotFoundError():
            return Unreachable(), str(error)
        case ResolverFailingError():
            return OwnFault(), str(error)
        case _:
            return Blocked(), f"may not be called: {error}"


def _broken_off(error: OSError) -> tuple[Outcome, str]:
    match error:
        case ssl.SSLCertVerificationError():
            return Unreachable(), f"TLS: {error.verify_message}"
        case ssl.SSLError():
            return Unreachable(), f"TLS: {error.reason or 'broken off'}"
        case _:
            outcome = OwnFault() if error.errno in _LOCAL_FAULTS else Unreachable()
            return outcome, os.strerror(error.errno).lower() if error.errno else "connection lost"


@cache
def _verifying() -> ssl.SSLContext:
    return httpx.create_ssl_context()


class _NotConnectedInTimeError(Exception):
    pass


@dataclass(frozen=True, slots=True)
class _Origin:
    scheme: str
    host: str
    port: int

    @classmethod
    def of(cls, url: httpx.URL) -> Self:
        host = url.raw_host.decode("ascii")
        return cls(url.scheme, host, url.port or (443 if url.scheme == "https" else 80))

    def carried(self) -> httpcore.Origin:
        return httpcore.Origin(self.scheme.encode(), self.host.encode(), self.port)


class _CountingReader(asyncio.StreamReader):
    """Knows how many bytes have arrived and were not read."""

    unread = 0

    def feed_data(self, data: Iterable[SupportsIndex]) -> None:
        arrived = bytes(data)
        self.unread += len(arrived)
        super().feed_data(arrived)

    async def read(self, n: int = -1) -> bytes:
        data = await super().read(n)
        self.unread -= len(data)
        return data


class _Stream(httpcore.AsyncNetworkStream):
    """Bytes to and from one address; `received` counts those of the answer to the latest request."""

    def __init__(self, reader: _CountingReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._unsent = b""
        self.received = 0

    @classmethod
    async def to(cls, address: Address, origin: _Origin, tls: ssl.SSLContext) -> Self:
        """Connects to just this address, whatever the origin's name resolves to by now."""
        loop = asyncio.get_running_loop()
        reader = _CountingReader(loop=loop)
        secure = origin.scheme == "https"
        transport, protocol = await loop.create_connection(
            lambda: asyncio.StreamReaderProtocol(reader, loop=loop),
            host=str(address),
            port=origin.port,
            ssl=tls if secure else None,
            server_hostname=origin.host.removesuffix(".") if secure else None,
        )
        return cls(reader, asyncio.StreamWriter(transport, protocol, reader, loop))

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ARG002, ASYNC109 - httpcore's
        # sent as one once the answer is waited for, which may come before all is taken
        self._unsent += buffer
        self.received = 0

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109 - httpcore's
        if self._unsent:
            self._writer.write(self._unsent)
            self._unsent = b""
        async with asyncio.timeout(timeout):
            data = await self._reader.read(max_bytes)
        self.received += len(data)
        if self.received > _LONGEST_ANSWER:
            raise httpcore.RemoteProtocolError("it is too long")
        return data

    async def aclose(self) -> None:
        self._writer.transport.abort()
        try:
            await self._writer.wait_closed()
        except OSError:
            return

    def get_extra_info(self, info: str) -> Any:  # noqa: ANN401 - httpcore's
        if info != "is_readable":
            return self._writer.get_extra_info(info)
        # asked of an idle connection: it was closed, or holds what nobody asked for
        reader = self._reader
        return bool(reader.unread or reader.at_eof() or reader.exception() or self._writer.is_closing())


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Connection:
    origin: _Origin
    stream: _Stream
    http: httpcore.AsyncHTTP11Connection

    def carried(self, request: httpx.Request) -> httpcore.Request:
        origin = self.origin
        return httpcore.Request(
            request.method,
            httpcore.URL(
                scheme=origin.scheme, host=origin.host, port=origin.port, target=request.url.raw_path
            ),
            headers=request.headers.raw,
            content=request.content,
        )


class _IdleConnections:
    """Connections kept alive by origin, the last used first; those unused for longest are closed first.

    A connection in use is in nobody's hands but its user's, so that none is closed under a request.
    """

    def __init__(self) -> None:
        self._by_origin: OrderedDict[_Origin, list[_Connection]] = OrderedDict()
        self._count = 0
        self._most = _MOST_IDLE

    async def take(self, origin: _Origin) -> _Connection | None:
        while idle := self._by_origin.get(origin):
            connection = idle.pop()
            self._forget_one(origin)
            if not connection.http.has_expired():
                return connection
            await connection.http.aclose()
        return None

    async def give(self, connection: _Connection) -> None:
        """Keeps a connection if it can carry another request, else closes it."""
        if not connection.http.is_idle():
            await connection.http.aclose()
            return
        self._by_origin.setdefault(connection.origin, []).append(connection)
        self._by_origin.move_to_end(connection.origin)
        self._count += 1
        while self._by_origin and (self._count > self._most or self._longest_unused().http.has_expired()):
            await self._close_one()

    async def close(self) -> None:
        self._most = 0
        while self._by_origin:
            await self._close_one()

    def _longest_unused(self) -> _Connection:
        return next(iter(self._by_origin.values()))[0]

    async def _close_one(self) -> None:
        unused = self._longest_unused()
        self._by_origin[unused.origin].remove(unused)
        self._forget_one(unused.origin)
        await unused.http.aclose()

    def _forget_one(self, origin: _Origin) -> None:
        self._count -= 1
        if not self._by_origin[origin]:
            del self._by_origin[origin]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Response:
    status: int
    headers: Sequence[tuple[bytes, bytes]]
    body: bytes

    def answer(self, duration: timedelta) -> Answer:
        wait = parse_retry_after(self._header(b"retry-after"), self._header(b"date"))
        outcome = judge_status(self.status, wait)
        return Answer(
            outcome=outcome,
            duration=duration,
            response_status=self.status,
            error=None if isinstance(outcome, Accepted) else self._complaint(),
            response_excerpt=_excerpt(self.body),
        )

    def _complaint(self) -> str:
        location = self._header(b"location")
        if location is None or not 300 <= self.status < 400:  # noqa: PLR2004
            return f"HTTP {self.status}"
        to = _one_line(location, _LONGEST_LOCATION)
        return f"HTTP {self.status} to {to} (redirects are not followed)"

    def _header(self, wanted: bytes) -> str | None:
        values = (value for name, value in self.headers if name.lower() == wanted)
        first = next(values, None)
        return None if first is None else first.decode("latin-1")


async def _beginning(response: httpcore.Response) -> bytes:
    """The body as it was sent, never decompressed; the rest of a long one is cut off with its connection."""
    body = bytearray()
    async for part in response.aiter_stream():
        body += part
        if len(body) >= _BODY_READ:
            break
    await response.aclose()
    return bytes(body)


def _excerpt(body: bytes) -> str | None:
    return body.decode("utf-8", "replace").replace("\0", "\ufffd")[:_LONGEST_EXCERPT] or None


def _one_line(text: str, longest: int) -> str:
    return "".join(c if c.isprintable() else "\ufffd" for c in text[:longest])


def _since(started: float) -> timedelta:
    return timedelta(seconds=time.monotonic() - started)
