"""Sends webhooks with httpx and httpcore, each connection made to an address that egress allowed."""

import asyncio
import ssl
from collections.abc import Iterable
from datetime import timedelta
from typing import Any, Self, SupportsIndex

import httpcore
import httpx

from hymical.adapters.http.answers import (
    BODY_READ,
    LONGEST_ANSWER,
    NotHttpError,
    Patience,
    Response,
    Route,
    answered,
)
from hymical.adapters.http.connections import (
    MOST_IDLE,
    Connections,
    Origin,
    headers_of,
    open_stream,
    verifying,
)
from hymical.adapters.http.egress import Address, Egress, TargetRefusedError
from hymical.domain.outcomes import Answer
from hymical.ports.deliveries import WebhookRequest


class HttpxWebhookSender:
    """The port `WebhookSender`. Open it as an async context manager; it closes idle connections at the end.

    httpx writes the request and httpcore carries it, without a client in between: a client would keep
    cookies, refuse an odd `Location`, and search all connections for each request.

    `connect_timeout` covers name resolution, TCP and TLS; together with `read_timeout` it is the hard
    deadline of an attempt. `tls` replaces the verifying default, which trusts certifi's authorities or those
    that `SSL_CERT_FILE` or `SSL_CERT_DIR` names. At most `most_idle` connections are kept for later requests.
    """

    def __init__(
        self,
        *,
        egress: Egress,
        connect_timeout: timedelta,
        read_timeout: timedelta,
        tls: ssl.SSLContext | None = None,
        most_idle: int = MOST_IDLE,
    ) -> None:
        self._tls = tls or verifying()
        self._patience = Patience.of(connect_timeout, read_timeout)
        self._connections = Connections(
            egress=egress, patience=self._patience.connect, most_idle=most_idle, dial=self._dial
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._connections.close()

    async def send(self, request: WebhookRequest) -> Answer:
        return await answered(lambda route: self._exchange(request, route), self._patience)

    async def _exchange(self, request: WebhookRequest, route: Route) -> Response:
        try:
            written = httpx.Request("POST", request.url, headers=headers_of(request), content=request.body)
        except httpx.InvalidURL:
            raise TargetRefusedError("the URL cannot be read") from None
        url = written.url
        origin = Origin.of(url.scheme, url.raw_host.decode("ascii"), url.port)
        return await self._connections.exchange(origin, written, route)

    async def _dial(self, address: Address, origin: Origin) -> "_Connection":
        return _Connection(origin, await _Stream.to(address, origin, self._tls))


class _Connection:
    def __init__(self, origin: Origin, stream: "_Stream") -> None:
        self._origin = httpcore.Origin(origin.scheme.encode(), origin.host.encode(), origin.port)
        self._stream = stream
        self._http = httpcore.AsyncHTTP11Connection(self._origin, stream)

    @property
    def received(self) -> int:
        return self._stream.received

    async def ask(self, request: httpx.Request) -> Response:
        try:
            response = await self._http.handle_async_request(self._carried(request))
            if not self._stream.received:
                raise NotHttpError.unasked()
            body = await _beginning(response)
        except httpcore.RemoteProtocolError:
            raise self._stream.fault() from None
        return Response(status=response.status, headers=response.headers, body=body)

    def is_reusable(self) -> bool:
        return self._http.is_idle() and not self._http.has_expired()

    async def aclose(self) -> None:
        await self._http.aclose()

    def _carried(self, request: httpx.Request) -> httpcore.Request:
        origin = self._origin
        return httpcore.Request(
            request.method,
            httpcore.URL(
                scheme=origin.scheme, host=origin.host, port=origin.port, target=request.url.raw_path
            ),
            headers=request.headers.raw,
            content=request.content,
        )


async def _beginning(response: httpcore.Response) -> bytes:
    """The body as it was sent, never decompressed; the rest of a long one is cut off with its connection."""
    body = bytearray()
    async for part in response.aiter_stream():
        body += part
        if len(body) >= BODY_READ:
            break
    await response.aclose()
    return bytes(body)


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
        self._ended = False
        self.received = 0

    @classmethod
    async def to(cls, address: Address, origin: Origin, tls: ssl.SSLContext) -> Self:
        loop = asyncio.get_running_loop()
        reader = _CountingReader(loop=loop)
        transport, protocol = await open_stream(
            lambda: asyncio.StreamReaderProtocol(reader, loop=loop), address, origin, tls
        )
        return cls(reader, asyncio.StreamWriter(transport, protocol, reader, loop))

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ARG002, ASYNC109 - httpcore's
        # sent as one once the answer is waited for, which may come before all is taken
        self._unsent += buffer
        self.received = 0

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109 - httpcore's
        if self._unsent:
            if self._reader.unread:
                raise NotHttpError.unasked()
            self._writer.write(self._unsent)
            self._unsent = b""
        async with asyncio.timeout(timeout):
            data = await self._reader.read(max_bytes)
        self._ended = not data
        self.received += len(data)
        if self.received > LONGEST_ANSWER:
            raise NotHttpError.too_long()
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

    def fault(self) -> NotHttpError:
        """Why what was read is no answer."""
        return NotHttpError.broken_off(self.received) if self._ended else NotHttpError.unreadable()
