"""Receivers of webhooks on loopback sockets that do what a test tells them, and names that lead there."""

import asyncio
import socket
import ssl
import struct
import subprocess
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from types import TracebackType
from typing import Self

from hymical.adapters.http.egress import Address, NameNotFoundError

_CHUNK = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """A request as it came over the wire. `connection` numbers connections from 1; `arrived` is loop time."""

    raw: bytes
    target: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    connection: int
    arrived: float

    def header(self, name: str) -> list[str]:
        return [value for given, value in self.headers if given.lower() == name.lower()]


@dataclass(slots=True)
class Wire:
    """The receiver's end of a connection. `gone` is set once the other end closed it or broke it off."""

    writer: asyncio.StreamWriter
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    sent: int = 0

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()
        self.sent += len(data)

    def close(self) -> None:
        self.writer.close()

    def reset(self) -> None:
        """Ends the connection with RST instead of FIN."""
        linger = struct.pack("ii", 1, 0)
        self.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self.writer.transport.abort()


Behaviour = Callable[[Wire], Awaitable[None]]
"""What a receiver does once it has read a request."""


def answer(
    status: int = 200,
    headers: Sequence[tuple[str, str]] = (),
    body: bytes = b"",
    *,
    close: bool = False,
) -> Behaviour:
    """Answers properly. `close` then ends the connection without having announced it."""
    return raw(_head(status, [*headers, ("content-length", str(len(body)))]) + body, close=close)


def raw(data: bytes, *, close: bool = False) -> Behaviour:
    async def behave(wire: Wire) -> None:
        await wire.send(data)
        if close:
            wire.close()

    return behave


def drip(data: bytes, *, at_once: bytes = b"", gap: float = 0.02) -> Behaviour:
    """Sends `at_once`, then one byte every `gap` seconds for as long as the other end listens."""

    async def behave(wire: Wire) -> None:
        await wire.send(at_once)
        for byte in data:
            await wire.send(bytes([byte]))
            with suppress(TimeoutError):
                await asyncio.wait_for(wire.gone.wait(), gap)
            if wire.gone.is_set():
                return

    return behave


def flood(size: int) -> Behaviour:
    """Announces and streams a body of `size` bytes."""

    async def behave(wire: Wire) -> None:
        await wire.send(_head(200, [("content-length", str(size))]))
        for _ in range(size // _CHUNK):
            await wire.send(b"x" * _CHUNK)

    return behave


def hold(until: asyncio.Event, then: Behaviour) -> Behaviour:
    async def behave(wire: Wire) -> None:
        await until.wait()
        await then(wire)

    return behave


async def hang(wire: Wire) -> None:
    """Says nothing for as long as the other end waits."""
    await wire.gone.wait()


async def reset(wire: Wire) -> None:
    """Breaks the connection off without an answer."""
    wire.reset()


def _head(status: int, headers: Sequence[tuple[str, str]]) -> bytes:
    lines = [f"HTTP/1.1 {status} Scripted", *(f"{name}: {value}" for name, value in headers)]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


class Receiver:
    """A scripted HTTP receiver. Each request gets the next behaviour; the last one serves for the rest.

    Open it as an async context manager. `requests` holds what arrived, `wires` the connections.
    """

    def __init__(
        self,
        *script: Behaviour,
        host: str = "127.0.0.1",
        port: int = 0,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._script = script or (answer(200),)
        self._host = host
        self._tls = tls
        self._changed = asyncio.Condition()
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = port
        self.requests: list[Received] = []
        self.wires: list[Wire] = []

    def url(self, path: str = "/hook", *, host: str | None = None) -> str:
        return f"{'https' if self._tls else 'http'}://{host or self._host}:{self.port}{path}"

    async def arrival(self, count: int) -> None:
        """Returns once `count` requests have arrived."""
        async with self._changed:
            await self._changed.wait_for(lambda: len(self.requests) >= count)

    async def __aenter__(self) -> Self:
        self._server = await asyncio.get_running_loop().create_server(
            lambda: _Connection(self._serve), self._host, self.port, ssl=self._tls
        )
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        for wire in self.wires:
            wire.writer.transport.abort()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(wire.writer.wait_closed() for wire in self.wires), return_exceptions=True)
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, wire: Wire) -> None:
        self.wires.append(wire)
        if serving := asyncio.current_task():
            self._tasks.add(serving)
        number = len(self.wires)
        with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while True:
                received = await _read(reader, number)
                behave = self._script[min(len(self.requests), len(self._script) - 1)]
                async with self._changed:
                    self.requests.append(received)
                    self._changed.notify_all()
                await behave(wire)
        wire.close()


async def _read(reader: asyncio.StreamReader, connection: int) -> Received:
    head = await reader.readuntil(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")[:-2]
    headers = tuple((name, value.strip()) for name, _, value in (line.partition(":") for line in lines))
    length = next((int(value) for name, value in headers if name.lower() == "content-length"), 0)
    body = await reader.readexactly(length)
    return Received(
        raw=head + body,
        target=first.split(" ")[1],
        headers=headers,
        body=body,
        connection=connection,
        arrived=asyncio.get_running_loop().time(),
    )


class _Connection(asyncio.StreamReaderProtocol):
    """A stream's protocol that says at once when the other end has gone, whether anybody reads or not."""

    def __init__(self, serve: Callable[[asyncio.StreamReader, Wire], Awaitable[None]]) -> None:
        self._gone = asyncio.Event()
        super().__init__(asyncio.StreamReader(), lambda r, w: serve(r, Wire(w, self._gone)))

    def eof_received(self) -> bool | None:
        self._gone.set()
        return super().eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._gone.set()
        super().connection_lost(exc)


class Names:
    """A resolver that gives the next of its answers each time, and the last one from then on.

    Without an answer, or with an empty one, no name is found. An exception as an answer is raised.
    """

    def __init__(self, *answers: Sequence[str] | Exception) -> None:
        self._answers = answers or ([],)
        self.asked: list[str] = []

    async def resolve(self, name: str) -> Sequence[Address]:
        found = self._answers[min(len(self.asked), len(self._answers) - 1)]
        self.asked.append(name)
        if isinstance(found, Exception):
            raise found
        if not found:
            raise NameNotFoundError(f"name not found: {name}")
        return [ip_address(address) for address in found]


@dataclass(frozen=True, slots=True)
class Certificate:
    """A key and a certificate that stands for itself."""

    path: Path

    @classmethod
    def make(cls, directory: Path, name: str) -> Self:
        path = directory / f"{name}.pem"
        command = [
            "openssl",
            "req",
            "-x509",
            "-nodes",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
        ]
        command += ["-days", "2", "-subj", f"/CN={name}", "-addext", f"subjectAltName=DNS:{name}"]
        command += ["-addext", "keyUsage=critical,digitalSignature,keyCertSign"]
        command += ["-keyout", str(path), "-out", str(directory / "certificate")]
        subprocess.run(command, check=True, capture_output=True)
        path.write_bytes(path.read_bytes() + (directory / "certificate").read_bytes())
        return cls(path)

    def shown(self, *, names: list[str | None] | None = None) -> ssl.SSLContext:
        """For a receiver; collects in `names` which server name each client asks for."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.path)
        if names is not None:
            context.sni_callback = lambda _socket, name, _context: names.append(name)
        return context

    def trusted(self) -> ssl.SSLContext:
        """For a sender."""
        return ssl.create_default_context(cafile=str(self.path))
