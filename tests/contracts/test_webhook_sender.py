"""What every sender of webhooks does, on real sockets."""

import asyncio
import errno
import gzip
import random
import resource
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, contextmanager
from datetime import timedelta
from ipaddress import ip_network
from ssl import SSLContext
from typing import Protocol

import pytest

from hymical.adapters.http.aiohttp_sender import AiohttpWebhookSender
from hymical.adapters.http.connections import MOST_IDLE
from hymical.adapters.http.egress import Address, Egress, Resolver, ResolverFailingError, SystemResolver
from hymical.adapters.http.httpx_sender import HttpxWebhookSender
from hymical.domain.outcomes import (
    Accepted,
    Answer,
    Blocked,
    Gone,
    Outcome,
    OwnFault,
    Refused,
    Rejected,
    Stale,
    TimedOut,
    Unreachable,
)
from hymical.entrypoints.bootstrap.resources import Role, open_container
from hymical.entrypoints.bootstrap.settings import Settings
from hymical.ports.deliveries import WebhookRequest, WebhookSender
from tests.receivers import (
    Behaviour,
    Certificate,
    Names,
    Receiver,
    Wire,
    answer,
    drip,
    flood,
    hang,
    hold,
    raw,
    reset,
)

PATIENCE = 5.0
NAME = "receiver.test"


class Senders(Protocol):
    """How a kind of sender is made."""

    def __call__(
        self,
        *,
        egress: Egress,
        connect_timeout: timedelta,
        read_timeout: timedelta,
        tls: SSLContext | None,
        most_idle: int,
    ) -> AbstractAsyncContextManager[WebhookSender]: ...


SENDERS: dict[str, Senders] = {"httpx": HttpxWebhookSender, "aiohttp": AiohttpWebhookSender}


class MakeSender(Protocol):
    """Opens a sender that is closed after the test; by default it may call 127.0.0.1, and no other address.

    Timeouts are in seconds.
    """

    async def __call__(
        self,
        *,
        names: Resolver | None = None,
        allowed: Sequence[str] = ("127.0.0.1/32",),
        connect: float = PATIENCE,
        read: float = PATIENCE,
        tls: SSLContext | None = None,
        most_idle: int = MOST_IDLE,
    ) -> WebhookSender: ...


@pytest.fixture(params=SENDERS.values(), ids=list(SENDERS))
async def make_sender(request: pytest.FixtureRequest) -> AsyncIterator[MakeSender]:
    senders: Senders = request.param
    async with AsyncExitStack() as opened:

        async def make(
            *,
            names: Resolver | None = None,
            allowed: Sequence[str] = ("127.0.0.1/32",),
            connect: float = PATIENCE,
            read: float = PATIENCE,
            tls: SSLContext | None = None,
            most_idle: int = MOST_IDLE,
        ) -> WebhookSender:
            egress = Egress(
                allowed_networks=tuple(map(ip_network, allowed)),
                resolver=names or Names(["127.0.0.1"]),
            )
            return await opened.enter_async_context(
                senders(
                    egress=egress,
                    connect_timeout=timedelta(seconds=connect),
                    read_timeout=timedelta(seconds=read),
                    tls=tls,
                    most_idle=most_idle,
                )
            )

        yield make


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return Certificate.make(tmp_path_factory.mktemp("certificates"), NAME)


def post(
    url: str, *, body: bytes = b'{"type": "test"}', headers: Sequence[tuple[str, str]] = ()
) -> WebhookRequest:
    return WebhookRequest(url=url, headers=(("content-type", "application/json"), *headers), body=body)


async def asked_once(make_sender: MakeSender, behaviour: Behaviour, *, read: float = PATIENCE) -> Answer:
    async with Receiver(behaviour) as receiver:
        sender = await make_sender(read=read, connect=min(read, PATIENCE))
        said = await sender.send(post(receiver.url()))
        assert len(receiver.requests) == 1
    assert_storable(said)
    return said


def assert_storable(said: Answer) -> None:
    for text, longest in ((said.error, 500), (said.response_excerpt, 1_024)):
        if text is not None:
            assert 0 < len(text) <= longest
            assert "\0" not in text
            assert text.encode()
    assert said.duration >= timedelta(0)


@pytest.mark.parametrize(("name", "kind"), [("httpx", HttpxWebhookSender), ("aiohttp", AiohttpWebhookSender)])
async def test_the_setting_chooses_the_sender(name: str, kind: type[WebhookSender]) -> None:
    settings = Settings.model_validate(
        {"database_url": "postgresql://127.0.0.1/none", "webhook_sender": name}
    )
    async with open_container(settings, Role.WORKER) as container:
        assert type(container.sender()) is kind


# What the receiver answers


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
async def test_2xx_is_accepted(make_sender: MakeSender, status: int) -> None:
    said = await asked_once(make_sender, answer(status))
    assert said.outcome == Accepted()
    assert said.response_status == status
    assert said.error is None


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        (408, Refused()),
        (425, Refused()),
        (429, Refused()),
        (500, Refused()),
        (502, Refused()),
        (503, Refused()),
        (599, Refused()),
        (410, Gone()),
        (300, Rejected()),
        (304, Rejected()),
        (400, Rejected()),
        (401, Rejected()),
        (404, Rejected()),
        (422, Rejected()),
        (499, Rejected()),
    ],
)
async def test_other_statuses_are_judged(make_sender: MakeSender, status: int, outcome: Outcome) -> None:
    said = await asked_once(make_sender, answer(status, body=b"" if status == 304 else b"why"))
    assert said.outcome == outcome
    assert said.response_status == status
    assert said.error == f"HTTP {status}"


@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ([("Retry-After", "120")], timedelta(seconds=120)),
        ([("retry-after", "9" * 5_000)], timedelta(hours=24)),
        ([("Retry-After", "-5")], timedelta(0)),
        ([("Retry-After", "soon")], timedelta(0)),
        ([("Retry-After", "\xb2")], timedelta(0)),
        (
            [("Date", "Sun, 29 Nov 2026 12:00:00 GMT"), ("Retry-After", "Sun, 29 Nov 2026 12:02:00 GMT")],
            timedelta(minutes=2),
        ),
        ([("Retry-After", "Sun, 29 Nov 2026 12:02:00 GMT")], timedelta(0)),
    ],
)
async def test_retry_after_is_handed_on(
    make_sender: MakeSender, headers: Sequence[tuple[str, str]], wait: timedelta
) -> None:
    said = await asked_once(make_sender, answer(503, headers))
    assert said.outcome == Refused(retry_after=wait)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_redirects_are_not_followed(make_sender: MakeSender, status: int) -> None:
    async with Receiver() as elsewhere:
        said = await asked_once(make_sender, answer(status, [("Location", elsewhere.url())]))
        assert elsewhere.wires == []
    assert said.outcome == Rejected()
    assert said.response_status == status
    assert said.error == f"HTTP {status} to {elsewhere.url()} (redirects are not followed)"


@pytest.mark.parametrize("location", ["http://[", "https://" + "a" * 9_000, "", "\xff\xfe", "//%zz:99999"])
async def test_a_location_may_be_anything(make_sender: MakeSender, location: str) -> None:
    said = await asked_once(make_sender, answer(302, [("Location", location)]))
    assert said.outcome == Rejected()
    assert said.error is not None
    assert said.error.endswith("(redirects are not followed)")


async def test_the_beginning_of_the_answer_is_kept(make_sender: MakeSender) -> None:
    assert (await asked_once(make_sender, answer(400, body=b"no\n"))).response_excerpt == "no\n"
    assert (await asked_once(make_sender, answer(200))).response_excerpt is None
    long = "\u00e9" * 20_000
    assert (await asked_once(make_sender, answer(200, body=long.encode()))).response_excerpt == long[:1_024]


async def test_an_answer_that_is_longer_than_what_is_kept_of_it_is_called_truncated(
    make_sender: MakeSender,
) -> None:
    said = [
        await asked_once(make_sender, answer(200, body=b"x" * size)) for size in (0, 1_024, 1_025, 100_000)
    ]
    assert [one.truncated for one in said] == [False, False, True, True]


async def test_the_address_that_was_called_is_told(make_sender: MakeSender) -> None:
    sender = await make_sender()
    async with Receiver(answer()) as receiver:
        answers = [await sender.send(post(receiver.url(host=NAME))) for _ in range(2)]
    refused = await sender.send(post(receiver.url(host=NAME)))
    blocked = await (await make_sender(allowed=())).send(post(receiver.url()))

    assert [one.remote_address for one in (*answers, refused)] == ["127.0.0.1"] * 3
    assert blocked.remote_address is None


async def test_a_body_of_unknown_length_is_read(make_sender: MakeSender) -> None:
    chunked = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n"
    assert (await asked_once(make_sender, raw(chunked))).response_excerpt == "hi"
    closed = raw(b"HTTP/1.0 200 OK\r\n\r\nbye", close=True)
    assert (await asked_once(make_sender, closed)).response_excerpt == "bye"


async def test_interim_answers_are_passed_over(make_sender: MakeSender) -> None:
    interim = b"HTTP/1.1 102 Processing\r\n\r\n" * 3
    said = await asked_once(make_sender, raw(interim + b"HTTP/1.1 204 No Content\r\n\r\n"))
    assert said.outcome == Accepted()


# What is on the wire


async def test_every_byte_and_header_is_sent_exactly_once(make_sender: MakeSender) -> None:
    body = '{"name": "J\u00fcrgen \u2603", "raw": "\\u0000"}'.encode() + bytes(range(256)) + b"x" * 100_000
    headers = [
        ("webhook-id", "evt_1"),
        ("webhook-signature", "v1,abc v1,def"),
        ("User-Agent", "Mine/1"),
        ("x-twice", "1"),
        ("X-Twice", "2"),
    ]
    async with Receiver() as receiver:
        sender = await make_sender()
        said = await sender.send(post(receiver.url("/a%20b?c=d&e="), body=body, headers=headers))
        (received,) = receiver.requests
    assert said.outcome == Accepted()
    assert received.raw.startswith(b"POST /a%20b?c=d&e= HTTP/1.1\r\n")
    assert received.raw.endswith(b"\r\n\r\n" + body)
    assert received.body == body
    assert received.header("x-twice") == ["1", "2"]
    for name, value in (
        ("host", f"127.0.0.1:{receiver.port}"),
        ("content-length", str(len(body))),
        ("content-type", "application/json"),
        ("webhook-id", "evt_1"),
        ("webhook-signature", "v1,abc v1,def"),
        ("user-agent", "Mine/1"),
        ("accept-encoding", "identity"),
    ):
        assert received.header(name) == [value]
    assert not received.header("transfer-encoding")
    assert not received.header("expect")


async def test_the_product_introduces_itself(make_sender: MakeSender) -> None:
    async with Receiver() as receiver:
        await (await make_sender()).send(post(receiver.url()))
        (agent,) = receiver.requests[0].header("user-agent")
    assert agent.startswith("Hymical/")


async def test_no_cookie_is_kept(make_sender: MakeSender) -> None:
    async with Receiver(answer(200, [("Set-Cookie", "a=b; Path=/")])) as receiver:
        sender = await make_sender()
        for _ in range(2):
            await sender.send(post(receiver.url()))
        assert not receiver.requests[1].header("cookie")


async def test_proxies_of_the_environment_are_ignored(
    make_sender: MakeSender, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Receiver() as proxy, Receiver() as receiver:
        for name in ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy.url(""))
        said = await (await make_sender()).send(post(receiver.url()))
        assert proxy.wires == []
    assert said.outcome == Accepted()


# Deadlines


@pytest.mark.parametrize(
    "behaviour",
    [
        hang,
        drip(b"HTTP/1.1 200 OK\r\nx-slow: " + b"x" * 10_000),
        drip(b"HTTP/1.1 100 Continue\r\n\r\n" * 1_000),
        drip(b"x" * 10_000, at_once=b"HTTP/1.1 200 OK\r\ncontent-length: 10000\r\n\r\n"),
        drip(b"1\r\nx\r\n" * 1_000, at_once=b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"),
    ],
    ids=["silence", "header", "interim", "body", "chunks"],
)
async def test_the_total_deadline_cuts_whatever_drips(make_sender: MakeSender, behaviour: Behaviour) -> None:
    async with Receiver(behaviour) as receiver:
        sender = await make_sender(connect=0.1, read=0.1)
        said = await sender.send(post(receiver.url()))
        assert said.outcome == TimedOut()
        assert said.error == "the total deadline of 0.2 s passed"
        assert timedelta(seconds=0.19) < said.duration < timedelta(seconds=2)
        await asyncio.wait_for(receiver.wires[0].gone.wait(), PATIENCE)
    assert_storable(said)


async def test_a_receiver_that_does_not_read_is_cut_off_too(make_sender: MakeSender) -> None:
    silent = asyncio.Event()

    async def ignore(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        await silent.wait()
        writer.transport.abort()

    server = await asyncio.start_server(ignore, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    sender = await make_sender(connect=0.1, read=0.1)
    assert (await sender.send(post(url, body=b"x" * 20_000_000))).outcome == TimedOut()
    silent.set()
    server.close()
    await server.wait_closed()


async def test_resolving_counts_as_connecting(make_sender: MakeSender) -> None:
    class Silent:
        async def resolve(self, name: str) -> Sequence[Address]:
            await asyncio.Event().wait()
            raise AssertionError(name)

    said = await (await make_sender(names=Silent(), connect=0.1)).send(post(f"http://{NAME}/"))
    assert said.outcome == TimedOut()
    assert said.error == "no connection within 0.1 s"


async def test_a_tls_handshake_counts_as_connecting(make_sender: MakeSender) -> None:
    async with Receiver() as plain:
        sender = await make_sender(connect=0.1)
        said = await sender.send(post(f"https://127.0.0.1:{plain.port}/"))
    assert said.outcome == TimedOut()
    assert said.error == "no connection within 0.1 s"


async def test_a_slow_answer_within_the_deadline_is_waited_for(make_sender: MakeSender) -> None:
    ready = asyncio.Event()
    async with Receiver(hold(ready, answer(200))) as receiver:
        sender = await make_sender()
        sending = asyncio.create_task(sender.send(post(receiver.url())))
        await receiver.arrival(1)
        assert not sending.done()
        ready.set()
        assert (await sending).outcome == Accepted()


async def test_cancelling_ends_the_request(make_sender: MakeSender) -> None:
    async with Receiver(hang) as receiver:
        sending = asyncio.create_task((await make_sender()).send(post(receiver.url())))
        await receiver.arrival(1)
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        await asyncio.wait_for(receiver.wires[0].gone.wait(), PATIENCE)


# Hostile answers


async def test_a_stream_without_end_is_cut(make_sender: MakeSender) -> None:
    size = 100_000_000
    async with Receiver(flood(size)) as receiver:
        said = await (await make_sender()).send(post(receiver.url()))
        await asyncio.wait_for(receiver.wires[0].gone.wait(), PATIENCE)
        assert receiver.wires[0].sent < size / 5
    assert said.outcome == Accepted()
    assert said.response_excerpt == "x" * 1_024


async def test_compression_is_neither_asked_for_nor_undone(make_sender: MakeSender) -> None:
    bomb = gzip.compress(b"\0" * 10_000_000)[:15_000]
    async with Receiver(answer(200, [("content-encoding", "gzip")], bomb)) as receiver:
        said = await (await make_sender()).send(post(receiver.url()))
        assert receiver.requests[0].header("accept-encoding") == ["identity"]
    assert said.outcome == Accepted()
    assert said.response_excerpt
    assert said.response_excerpt.startswith("\x1f\ufffd\x08")
    assert_storable(said)


@pytest.mark.parametrize(
    "body",
    [
        b"\0",
        b"a\0b",
        b"\xff\xfe\0",
        b"\xed\xa0\x80",
        b"\xf0\x9f\x98",
        bytes(range(256)) * 40,
        b"\xf0\x9f\x98\x80" * 4_000,
    ],
)
async def test_the_excerpt_can_be_stored_whatever_was_sent(make_sender: MakeSender, body: bytes) -> None:
    said = await asked_once(make_sender, answer(200, [("content-type", "text/html; charset=utf-16")], body))
    assert said.outcome == Accepted()
    assert said.response_excerpt


@pytest.mark.parametrize(
    "garbage",
    [
        b"\0\xff\xfe garbage\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.9\r\n",
        b"HTTP/1.1 20x OK\r\n\r\n",
        b"HTTP/1.1 000 Zero\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nx: a\0b\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nx: " + b"x" * 1_000_000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 200_000 + b"\r\n",
        b"HTTP/1.1 102 Processing\r\n\r\n" * 100_000,
        b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf",
        b"HTTP/1.1 200",
        b"",
    ],
)
async def test_what_is_not_http_is_unreachable(make_sender: MakeSender, garbage: bytes) -> None:
    said = await asked_once(make_sender, raw(garbage, close=True))
    assert said.outcome == Unreachable()
    assert said.error


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (b"", "the connection ended before it"),
        (b"HTTP/1.1 200", "the connection ended within it"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf", "the connection ended within it"),
        (b"SSH-2.0-OpenSSH_9.9\r\n\r\n", "it cannot be read"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n", "it cannot be read"),
        (b"HTTP/1.1 099 Odd\r\ncontent-length: 0\r\n\r\n", "it cannot be read"),
        (b"HTTP/1.1 101 Switching\r\nupgrade: x\r\nconnection: upgrade\r\n\r\nx", "it cannot be read"),
        (b"HTTP/1.1 101 Switching\r\n\r\n", "it cannot be read"),
        (b"HTTP/1.1 102 Processing\r\n\r\n" * 100_000, "it is too long"),
    ],
)
async def test_the_error_says_why_there_is_no_answer(make_sender: MakeSender, said: bytes, why: str) -> None:
    assert (await asked_once(make_sender, raw(said, close=True))).error == f"no valid HTTP answer: {why}"


async def test_an_answer_that_breaks_within_its_body_is_not_waited_for(make_sender: MakeSender) -> None:
    chunk = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n"
    broken = asyncio.Event()

    async def behave(wire: Wire) -> None:
        await wire.send(chunk)
        await broken.wait()
        await wire.send(b"zz\r\n")

    async with Receiver(behave) as receiver:
        sending = asyncio.create_task((await make_sender()).send(post(receiver.url())))
        await receiver.arrival(1)
        broken.set()
        assert (await sending).outcome == Unreachable()


async def test_a_reset_is_unreachable_and_not_tried_again_on_a_new_connection(
    make_sender: MakeSender,
) -> None:
    said = await asked_once(make_sender, reset)
    assert said.outcome == Unreachable()


# Connections


async def test_a_connection_is_reused(make_sender: MakeSender) -> None:
    async with Receiver(answer(200, body=b"ok")) as receiver:
        sender = await make_sender()
        for _ in range(20):
            assert (await sender.send(post(receiver.url()))).outcome == Accepted()
        assert len(receiver.requests) == 20
        assert len(receiver.wires) == 1


async def test_concurrent_requests_each_have_a_connection_and_leave_it_to_later_ones(
    make_sender: MakeSender,
) -> None:
    ready = asyncio.Event()
    async with Receiver(hold(ready, answer(200))) as receiver:
        sender = await make_sender()
        for _ in range(2):
            ready.clear()
            sending = [asyncio.create_task(sender.send(post(receiver.url()))) for _ in range(100)]
            await receiver.arrival(len(receiver.requests) + 100)
            ready.set()
            assert {said.outcome for said in await asyncio.gather(*sending)} == {Accepted()}
        assert len(receiver.wires) == 100


async def test_a_connection_is_not_shared_between_origins(make_sender: MakeSender) -> None:
    async with Receiver() as one, Receiver() as other:
        sender = await make_sender()
        for receiver in (one, other, one, other):
            assert (await sender.send(post(receiver.url()))).outcome == Accepted()
        assert (len(one.wires), len(other.wires)) == (1, 1)


async def test_connections_to_many_origins_do_not_pile_up(make_sender: MakeSender) -> None:
    async with Receiver() as receiver:
        sender = await make_sender(most_idle=10)
        for number in range(30):
            await sender.send(post(receiver.url(host=f"a{number}.test")))
        for wire in receiver.wires[:20]:
            await asyncio.wait_for(wire.gone.wait(), PATIENCE)
        assert [wire.gone.is_set() for wire in receiver.wires] == [True] * 20 + [False] * 10


async def test_under_steady_load_to_200_destinations_more_than_90_percent_of_requests_reuse_a_connection(
    make_sender: MakeSender,
) -> None:
    dice = random.Random(1)  # noqa: S311 - which destination is next
    async with Receiver() as receiver:
        sender = await make_sender()

        async def send(count: int) -> None:
            picked = iter([f"a{dice.randrange(200)}.test" for _ in range(count)])

            async def send_on() -> None:
                for host in picked:
                    assert (await sender.send(post(receiver.url(host=host)))).outcome == Accepted()

            await asyncio.gather(*(send_on() for _ in range(20)))

        await send(1_000)
        connected = len(receiver.wires)
        await send(1_500)
        assert len({received.header("host")[0] for received in receiver.requests}) == 200
        assert len(receiver.wires) - connected < 150


@pytest.mark.parametrize("ending", ["closed", "answered and closed", "reset", "garbage", "another answer"])
async def test_a_kept_connection_that_went_stale_is_never_asked_again_within_one_attempt(
    make_sender: MakeSender, ending: str
) -> None:
    async def close(wire: object) -> None:
        receiver.wires[0].close()
        assert wire

    another = raw(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n" * 2)
    trailing = raw(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\ngarbage\r\n\r\n")
    script: dict[str, list[Behaviour]] = {
        "closed": [answer(200), close],
        "answered and closed": [answer(200, close=True)],
        "reset": [answer(200), reset],
        "garbage": [trailing],
        "another answer": [another],
    }
    async with Receiver(*script[ending], answer(201)) as receiver:
        sender = await make_sender()
        assert (await sender.send(post(receiver.url()))).response_status == 200
        if ending == "answered and closed":
            await asyncio.wait_for(receiver.wires[0].gone.wait(), PATIENCE)
        said = await sender.send(post(receiver.url()))
        if ending in {"closed", "reset"}:
            assert said.outcome == Stale()
        if said.outcome == Stale():
            # the receiver may have read it: to ask again is another attempt, on a new connection
            assert len(receiver.wires) == 1
            said = await sender.send(post(receiver.url()))
        assert (said.outcome, said.response_status) == (Accepted(), 201)
        assert len(receiver.wires) == 2


async def test_a_kept_connection_that_breaks_within_an_answer_is_not_tried_again(
    make_sender: MakeSender,
) -> None:
    async with Receiver(answer(200), raw(b"HTTP/1.1 2", close=True)) as receiver:
        sender = await make_sender()
        await sender.send(post(receiver.url()))
        assert (await sender.send(post(receiver.url()))).outcome == Unreachable()
        assert len(receiver.requests) == 2


async def test_a_refused_port_is_unreachable(make_sender: MakeSender) -> None:
    async with Receiver() as receiver:
        url = receiver.url()
    said = await (await make_sender()).send(post(url))
    assert said.outcome == Unreachable()
    assert said.error == "connection refused"


# TLS


async def test_host_and_server_name_stay_those_of_the_url(
    make_sender: MakeSender, certificate: Certificate
) -> None:
    asked: list[str | None] = []
    names = Names(["127.0.0.1"])
    async with Receiver(tls=certificate.shown(names=asked)) as receiver:
        sender = await make_sender(names=names, tls=certificate.trusted())
        for _ in range(3):
            assert (await sender.send(post(receiver.url(host=NAME)))).outcome == Accepted()
        assert asked == [NAME]
        assert names.asked == [NAME]
        assert {*receiver.requests[0].header("host")} == {f"{NAME}:{receiver.port}"}


@pytest.mark.parametrize("host", ["127.0.0.1", "other.test"])
async def test_a_certificate_for_another_name_is_refused(
    make_sender: MakeSender, certificate: Certificate, host: str
) -> None:
    async with Receiver(tls=certificate.shown()) as receiver:
        said = await (await make_sender(tls=certificate.trusted())).send(post(receiver.url(host=host)))
        assert receiver.requests == []
    assert said.outcome == Unreachable()
    assert said.error is not None
    assert said.error.startswith("TLS: ")


async def test_an_untrusted_certificate_is_refused_by_default(
    make_sender: MakeSender, certificate: Certificate
) -> None:
    async with Receiver(tls=certificate.shown()) as receiver:
        said = await (await make_sender()).send(post(receiver.url(host=NAME)))
        assert receiver.requests == []
    assert said.outcome == Unreachable()
    assert said.error is not None
    assert "self-signed certificate" in said.error


async def test_a_receiver_without_tls_is_unreachable_by_https(make_sender: MakeSender) -> None:
    async def chat(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail.example ESMTP\r\n")
        writer.close()

    server = await asyncio.start_server(chat, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    said = await (await make_sender()).send(post(f"https://127.0.0.1:{port}/"))
    assert said.outcome == Unreachable()
    server.close()
    await server.wait_closed()


# Which address is called


@pytest.mark.parametrize(
    ("url", "setting"),
    [
        ("http://127.0.0.1:{port}/", "FORMS_WEBHOOK_ALLOWED_NETWORKS"),
        ("http://127.1:{port}/", "FORMS_WEBHOOK_ALLOWED_NETWORKS"),
        ("http://2130706433:{port}/", "FORMS_WEBHOOK_ALLOWED_NETWORKS"),
        ("https://0x7f.1:{port}/", "FORMS_WEBHOOK_ALLOWED_NETWORKS"),
        ("http://[::ffff:127.0.0.1]:{port}/", "FORMS_WEBHOOK_ALLOWED_NETWORKS"),
        ("http://[64:ff9b::7f00:1]:{port}/", "FORMS_WEBHOOK_ALLOWED_NETWORKS"),
        ("http://receiver.test:{port}/", "FORMS_WEBHOOK_ALLOWED_NETWORKS"),
        ("http://8.8.8.8:{port}/", "FORMS_WEBHOOK_ALLOW_HTTP"),
        ("ftp://127.0.0.1:{port}/", ""),
        ("http://0177.0.0.1:{port}/", ""),
        ("http://[::1%25lo]:{port}/", ""),
    ],
)
async def test_a_blocked_target_is_never_connected_to(
    make_sender: MakeSender, url: str, setting: str
) -> None:
    async with Receiver() as receiver:
        sender = await make_sender(allowed=["192.0.2.0/24"])
        said = await sender.send(post(url.format(port=receiver.port)))
        assert receiver.wires == []
    assert said.outcome == Blocked()
    assert said.error is not None
    assert setting in said.error


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1", "2130706433", "0x7f000001", "[::ffff:127.0.0.1]"])
async def test_an_allowed_address_may_be_spelled_in_any_way(make_sender: MakeSender, host: str) -> None:
    async with Receiver() as receiver:
        said = await (await make_sender()).send(post(receiver.url(host=host)))
        assert receiver.requests[0].header("host") == [f"{host}:{receiver.port}"]
    assert said.outcome == Accepted()


async def test_a_name_that_was_public_when_it_was_checked_is_judged_again_when_it_is_called(
    make_sender: MakeSender,
) -> None:
    names = Names(["93.184.216.34"], ["127.0.0.1"])
    await Egress(resolver=names).check(f"https://{NAME}/")
    async with Receiver() as receiver:
        sender = await make_sender(names=names, allowed=[])
        said = await sender.send(post(f"https://{NAME}:{receiver.port}/"))
        assert receiver.wires == []
    assert said.outcome == Blocked()
    assert names.asked == [NAME, NAME]


async def test_the_address_that_was_checked_is_the_one_connected_to(make_sender: MakeSender) -> None:
    names = Names(["127.0.0.2"], ["127.0.0.1"])
    async with Receiver(host="127.0.0.2") as checked, Receiver(port=checked.port) as rebound:
        sender = await make_sender(names=names, allowed=["127.0.0.2/32"])
        said = await sender.send(post(checked.url(host=NAME)))
        assert (len(checked.wires), len(rebound.wires)) == (1, 0)
    assert said.outcome == Accepted()
    assert names.asked == [NAME]


@pytest.mark.parametrize("answered", [["127.0.0.1", "127.0.0.2"], ["127.0.0.2", "::1", "127.0.0.1"]])
async def test_only_the_allowed_addresses_of_a_name_are_connected_to(
    make_sender: MakeSender, answered: Sequence[str]
) -> None:
    async with Receiver(host="127.0.0.2") as allowed, Receiver(port=allowed.port) as refused:
        sender = await make_sender(names=Names(answered), allowed=["127.0.0.2/32"])
        assert (await sender.send(post(allowed.url(host=NAME)))).outcome == Accepted()
        assert (len(allowed.wires), len(refused.wires)) == (1, 0)


async def test_the_next_allowed_address_is_tried_when_one_does_not_answer(make_sender: MakeSender) -> None:
    async with Receiver(host="127.0.0.3") as receiver:
        sender = await make_sender(names=Names(["127.0.0.2", "127.0.0.3"]), allowed=["127.0.0.0/8"])
        assert (await sender.send(post(receiver.url(host=NAME)))).outcome == Accepted()


async def test_a_name_that_is_not_found_is_unreachable(make_sender: MakeSender) -> None:
    said = await (await make_sender(names=Names())).send(post("http://example.invalid/"))
    assert said.outcome == Unreachable()
    assert said.error == "name not found: example.invalid"


async def test_the_system_says_where_a_name_leads_unless_told_otherwise(make_sender: MakeSender) -> None:
    async with Receiver() as receiver:
        sender = await make_sender(names=SystemResolver())
        said = await sender.send(post(receiver.url(host="localhost")))
        assert receiver.requests[0].header("host") == [f"localhost:{receiver.port}"]
    assert said.outcome == Accepted()


# Faults of our own


@contextmanager
def no_more_files() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_a_local_limit_is_our_own_fault(make_sender: MakeSender) -> None:
    async with Receiver() as receiver:
        sender = await make_sender()
        with no_more_files():
            said = await sender.send(post(receiver.url()))
        assert said.outcome == OwnFault()
        assert said.error == "too many open files"
        assert (await sender.send(post(receiver.url()))).outcome == Accepted()


@pytest.mark.parametrize(
    "error",
    [ResolverFailingError("the resolver is failing"), OSError(errno.EMFILE, "full"), LookupError("secret")],
)
async def test_a_resolver_that_fails_is_our_own_fault(make_sender: MakeSender, error: Exception) -> None:
    said = await (await make_sender(names=Names(error))).send(post(f"http://{NAME}/"))
    assert said.outcome == OwnFault()
    assert said.error is not None
    assert "secret" not in said.error
