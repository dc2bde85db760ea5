"""Sends webhooks with aiohttp's HTTP, each connection made to an address that egress allowed."""

import asyncio
import ssl
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Self

from aiohttp import ClientError, StreamReader
from aiohttp.client_proto import ResponseHandler
from aiohttp.http import HttpProcessingError, RawResponseMessage, StreamWriter
from multidict import CIMultiDict
from yarl import URL

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

_END_OF_HEAD = b"\r\n\r\n"


class AiohttpWebhookSender:
    """The port `WebhookSender`. Open it as an async context manager; it closes idle connections at the end.

    aiohttp writes the request and parses the response, without a session in between: a session would
    refuse the odd spellings of an address, read leftover bytes as the next answer, keep any number of
    idle connections, and cost a task for each request.

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
            # a destination's URL is ASCII without spaces, and is sent as it was written
            url = URL(request.url, encoded=True)
            origin = Origin.of(url.scheme, (url.raw_host or "").lower(), url.port)
        except ValueError:
            raise TargetRefusedError("the URL cannot be read") from None
        return await self._connections.exchange(origin, _Written.of(request, url), route)

    async def _dial(self, address: Address, origin: Origin) -> "_Connection":
        _, connection = await open_stream(_Connection, address, origin, self._tls)
        return connection


@dataclass(frozen=True, slots=True, kw_only=True)
class _Written:
    line: str
    headers: "CIMultiDict[str]"
    body: bytes

    @classmethod
    def of(cls, request: WebhookRequest, url: URL) -> Self:
        headers = CIMultiDict(host=_host(url))
        headers.update(headers_of(request))
        headers.setdefault("content-length", str(len(request.body)))
        return cls(line=f"POST {url.raw_path_qs} HTTP/1.1", headers=headers, body=request.body)


def _host(url: URL) -> str:
    host = (url.raw_host or "").lower()
    bare = f"[{host}]" if ":" in host else host
    return bare if url.is_default_port() else f"{bare}:{url.port}"


class _Connection(ResponseHandler):
    """aiohttp's protocol, but it takes only what was asked for, up to the bound, and says what went wrong."""

    def __init__(self) -> None:
        super().__init__(asyncio.get_running_loop())
        self.received = 0
        self._waiting = False
        self._at_rest = False
        self._body: StreamReader | None = None
        self._fault: Exception | None = None
        self._fed_last = b""

    async def ask(self, request: _Written) -> Response:
        self.received, self._fed_last, self._body, self._at_rest = 0, b"", None, False
        self.set_response_params(
            read_until_eof=True,
            auto_decompress=False,
            read_bufsize=BODY_READ,
            max_line_size=LONGEST_ANSWER,
            max_field_size=LONGEST_ANSWER,
            max_headers=LONGEST_ANSWER,
        )
        writer = StreamWriter(self, self._loop)
        await writer.write_headers(request.line, request.headers)
        self._waiting = True
        try:
            # the answer may come before all is taken
            await writer.write(request.body, drain=False)
            message, payload = await self.read()
            body = await _beginning(payload)
        except (ClientError, HttpProcessingError):
            raise self._fault or NotHttpError.unreadable() from None
        finally:
            self._waiting = False
        self._at_rest = payload.at_eof()
        return Response(status=message.code, headers=message.raw_headers, body=body)

    def is_reusable(self) -> bool:
        return self._at_rest and self.is_connected() and not self.should_close

    async def aclose(self) -> None:
        self.abort()
        if (closed := self.closed) is not None:
            with suppress(ClientError):
                await closed

    def data_received(self, data: bytes) -> None:
        if not self._waiting:
            self._fail(NotHttpError.unasked())
            return
        self.received += len(data)
        if not data:
            # aiohttp's way to go on with what it holds
            super().data_received(data)
        while data and self.is_connected():
            part, data = self._head_and_rest(data) if self._body is None else (data, b"")
            super().data_received(part)
        read = 0 if self._body is None else self._body.total_bytes
        if self.received > LONGEST_ANSWER and read < BODY_READ:
            self._fail(NotHttpError.too_long())

    def feed_data(self, data: tuple[RawResponseMessage, StreamReader], size: int = 0) -> None:
        """Takes an answer that was parsed; interim ones are passed over."""
        message, payload = data
        if message.code >= 200:  # noqa: PLR2004
            self._body = payload
            super().feed_data(data, size)
        elif message.code < 100 or message.code == 101:  # noqa: PLR2004
            self._fail(NotHttpError.unreadable())

    def set_exception(self, exc: BaseException, *cause: BaseException) -> None:
        super().set_exception(exc, *cause)
        # aiohttp tells only who waits for a head
        if self._body is not None and not self._body.is_eof():
            self._body.set_exception(exc)

    def connection_lost(self, exc: BaseException | None) -> None:
        if self._fault is None and self.exception() is None:
            self._fault = exc if isinstance(exc, OSError) else NotHttpError.broken_off(self.received)
        super().connection_lost(exc)

    def _head_and_rest(self, data: bytes) -> tuple[bytes, bytes]:
        """Splits behind a head: aiohttp forgets an answer when the bytes behind it, if they come along, are none."""
        end = (self._fed_last + data).find(_END_OF_HEAD) + len(_END_OF_HEAD) - len(self._fed_last)
        head, rest = (data[:end], data[end:]) if end > 0 else (data, b"")
        self._fed_last = (self._fed_last + head)[1 - len(_END_OF_HEAD) :]
        return head, rest

    def _fail(self, fault: NotHttpError) -> None:
        self._fault = fault
        self.abort()


async def _beginning(payload: StreamReader) -> bytes:
    """The body as it was sent, never decompressed; the rest of a long one is cut off with its connection."""
    body = bytearray()
    while len(body) < BODY_READ and not payload.at_eof():
        body += await payload.readany()
    return bytes(body)
