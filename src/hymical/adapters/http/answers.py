"""What came of a request, in outcomes and words that can be stored, whichever library carried it."""

import asyncio
import errno
import os
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import timedelta

from hymical.adapters.http.egress import EgressError, NameNotFoundError, ResolverFailingError
from hymical.domain.outcomes import (
    Accepted,
    Answer,
    Blocked,
    Outcome,
    OwnFault,
    Stale,
    TimedOut,
    Unreachable,
    judge_status,
)
from hymical.domain.retries import parse_retry_after

BODY_READ = 16 * 1024
LONGEST_ANSWER = 256 * 1024
"""Bytes of an answer with all that frames it, as long as the body has not reached `BODY_READ`."""

LOCAL_FAULTS = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}

_OVERDUE, _TO_READ = 0.1, 0.5

_LONGEST_EXCERPT = 1_024
_LONGEST_ERROR = 500
_LONGEST_LOCATION = 300


class NotConnectedInTimeError(Exception):
    """There was no connection when the time for it was over."""


class StaleConnectionError(Exception):
    """A kept connection broke before any byte of an answer."""


class NotHttpError(Exception):
    """Why there is no valid answer, in words."""

    @classmethod
    def broken_off(cls, received: int) -> "NotHttpError":
        return cls("the connection ended within it" if received else "the connection ended before it")

    @classmethod
    def too_long(cls) -> "NotHttpError":
        return cls("it is too long")

    @classmethod
    def unasked(cls) -> "NotHttpError":
        return cls("it was there before the request was sent")

    @classmethod
    def unreadable(cls) -> "NotHttpError":
        return cls("it cannot be read")


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long to wait, in seconds: for a connection, and for everything together."""

    connect: float
    total: float

    @classmethod
    def of(cls, connect: timedelta, read: timedelta) -> "Patience":
        return cls(connect=connect.total_seconds(), total=(connect + read).total_seconds())


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """A response as it was sent; `body` is the beginning of it, never decompressed."""

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
            truncated=len(self.body) >= BODY_READ
            or len(self.body.decode("utf-8", "replace")) > _LONGEST_EXCERPT,
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


@dataclass(slots=True)
class Route:
    """Which address a request went to, or was last tried at; filled in on the way."""

    address: str | None = None


async def answered(exchange: Callable[[Route], Awaitable[Response]], patience: Patience) -> Answer:
    """Awaits a response until the hard deadline; whatever fails is an answer too, so that a worker goes on."""
    started, route = time.monotonic(), Route()
    try:
        async with _deadline(patience.total):
            response = await exchange(route)
        answer = response.answer(_since(started))
    except Exception as error:  # noqa: BLE001 - see above
        outcome, words = _failure(error, patience)
        answer = Answer(outcome=outcome, duration=_since(started), error=_one_line(words, _LONGEST_ERROR))
    return replace(answer, remote_address=route.address)


@asynccontextmanager
async def _deadline(seconds: float) -> AsyncIterator[None]:
    """Like `asyncio.timeout`, but a process that stood still first reads what has come meanwhile.

    Its timers are overdue before it has looked at any socket; an answer that waits there would be thrown away,
    and its webhook sent again.
    """
    loop = asyncio.get_running_loop()
    ends = loop.time() + seconds
    async with asyncio.timeout(None) as limit:

        def end() -> None:
            now = loop.time()
            limit.reschedule(now + _TO_READ if now - ends > _OVERDUE else now)

        timer = loop.call_at(ends, end)
        try:
            yield
        finally:
            timer.cancel()


def _failure(error: Exception, patience: Patience) -> tuple[Outcome, str]:
    match error:
        case NameNotFoundError():
            return Unreachable(), str(error)
        case ResolverFailingError():
            return OwnFault(), str(error)
        case EgressError():
            return Blocked(), f"may not be called: {error}"
        case NotConnectedInTimeError():
            return TimedOut(), f"no connection within {patience.connect:g} s"
        case StaleConnectionError():
            return Stale(), "the kept connection had gone stale; it is sent again at once, on a new one"
        case TimeoutError(errno=None):
            return TimedOut(), f"the total deadline of {patience.total:g} s passed"
        case OSError():
            return _broken_off(error)
        case NotHttpError():
            return Unreachable(), f"no valid HTTP answer: {error}"
        case _:
            # its message may quote a header, and headers hold secrets
            return OwnFault(), f"unexpected {type(error).__name__}"


def _broken_off(error: OSError) -> tuple[Outcome, str]:
    match error:
        case ssl.SSLCertVerificationError():
            return Unreachable(), f"TLS: {error.verify_message}"
        case ssl.SSLError():
            return Unreachable(), f"TLS: {error.reason or 'broken off'}"
        case _:
            outcome = OwnFault() if error.errno in LOCAL_FAULTS else Unreachable()
            return outcome, os.strerror(error.errno).lower() if error.errno else "connection lost"


def _excerpt(body: bytes) -> str | None:
    return body.decode("utf-8", "replace").replace("\0", "\ufffd")[:_LONGEST_EXCERPT] or None


def _one_line(text: str, longest: int) -> str:
    return "".join(c if c.isprintable() else "\ufffd" for c in text[:longest])


def _since(started: float) -> timedelta:
    return timedelta(seconds=time.monotonic() - started)
