"""What came of a request whose process did not run all the while."""

import asyncio
import socket
from collections.abc import Callable

import pytest

from hymical.adapters.http.answers import Patience, Response, Route, answered
from hymical.domain.outcomes import Accepted, TimedOut

PATIENCE = Patience(connect=1, total=2)


@pytest.fixture
async def stand_still(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """For five seconds, as after SIGSTOP: the clock has gone on, and nothing else has."""
    loop = asyncio.get_running_loop()
    run, lost = loop.time, [0.0]
    monkeypatch.setattr(loop, "time", lambda: run() + sum(lost))
    return lambda: lost.append(5.0)


async def test_an_answer_that_came_while_the_process_stood_still_was_thrown_away(
    stand_still: Callable[[], None],
) -> None:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)

    def meanwhile() -> None:
        theirs.send(b"noted")
        stand_still()

    async def exchange(_: Route) -> Response:
        loop = asyncio.get_running_loop()
        loop.call_soon(meanwhile)
        body = await loop.sock_recv(ours, 100)
        return Response(status=200, headers=(), body=body)

    with ours, theirs:
        assert (await answered(exchange, PATIENCE)).outcome == Accepted()


async def test_the_deadline_of_a_process_that_stood_still_ends_what_has_not_come(
    stand_still: Callable[[], None],
) -> None:
    async def exchange(_: Route) -> Response:
        stand_still()
        await asyncio.Event().wait()
        raise AssertionError

    said = await answered(exchange, PATIENCE)
    assert said.outcome == TimedOut()
    assert said.error == "the total deadline of 2 s passed"
