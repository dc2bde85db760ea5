"""psycopg's connection, waiting for answers at half the cost."""

import asyncio
from collections import namedtuple
from collections.abc import Callable, Generator, Sequence
from typing import Any, TypeVar

import psycopg
from psycopg.adapt import PyFormat, Transformer
from psycopg.errors import error_from_result
from psycopg.generators import execute
from psycopg.pq import ConnStatus, ExecStatus, Format
from psycopg.pq.abc import PGresult
from psycopg.waiting import Ready, Wait

_Answer = TypeVar("_Answer")
_Steps = Generator[Wait, Ready, _Answer]
_TICK_SECONDS = 0.1


class Connection(psycopg.AsyncConnection[Any]):
    """The event loop watches its socket for as long as it is open.

    The driver begins to watch at each wait, sets a timer, and ends both again: two calls of the operating system
    and a third of the CPU time of a short statement (docs/decisions/0014). Whatever is not a plain wait for an
    answer, cancellation among it, is left to the driver.
    """

    _watched_by: asyncio.AbstractEventLoop | None = None
    _watched = -1
    _awaited: asyncio.Future[None] | None = None
    _statements: dict[bytes, Callable[[Sequence[Any]], Any] | None] | None = None

    async def wait(
        self,
        gen: _Steps[_Answer],
        interval: float = _TICK_SECONDS,
        timeout: float | None = None,  # noqa: ASYNC109  the driver's own
    ) -> _Answer:
        try:
            wanted = next(gen)
            while wanted == Wait.R and timeout is None:
                await self._something_to_read()
                wanted = gen.send(Ready.R)
                if wanted == Wait.R:
                    # there is more to come: uvloop tells once that a socket is broken, and then never again
                    self._watch_no_more()
        except StopIteration as end:
            answer: _Answer = end.value
            return answer
        except asyncio.CancelledError as error:
            rest = _Rest(gen, Wait.R, error)
        else:
            rest = _Rest(gen, wanted, None)
        finally:
            if self.pgconn.status != ConnStatus.OK:
                # its socket is closed, and the number of it may be another's with the next step of the event loop
                self._watch_no_more()
        self._watch_no_more()
        left: _Answer = await super().wait(rest, interval, timeout)  # type: ignore[arg-type]
        return left

    async def run(self, name: bytes, statement: bytes, parameters: Sequence[Any]) -> list[Any]:
        """The rows, as named tuples, of a statement that is prepared under its name when it is first run.

        PostgreSQL finds out the types of parameters by itself: an integer that was small once may be large next.

        Raises:
            psycopg.Error: as a cursor does.
        """
        async with self.lock:
            if self._statements is None:
                self._statements = {}
            if name not in self._statements:
                await self._prepare(name, statement)
                # how its rows are made is known with the first of them
                self._statements[name] = None
            transformer = Transformer(self)
            values = transformer.dump_sequence(parameters, [PyFormat.TEXT] * len(parameters))
            self.pgconn.send_query_prepared(name, values, result_format=Format.BINARY)
            result = await self._outcome()
            if result.status != ExecStatus.TUPLES_OK:
                return []
            make = self._statements[name]
            if make is None:
                make = self._statements[name] = _row_of(result)
        transformer.set_pgresult(result)
        return transformer.load_rows(0, result.ntuples, make)

    async def _prepare(self, name: bytes, statement: bytes) -> None:
        self.pgconn.send_prepare(name, statement)
        try:
            await self._outcome()
        except BaseException:
            # whether PostgreSQL knows the name by now cannot be told
            await self.close()
            raise

    async def _outcome(self) -> PGresult:
        """Of the one command that was sent."""
        result: PGresult = (await self.wait(execute(self.pgconn)))[-1]
        if result.status == ExecStatus.FATAL_ERROR:
            raise error_from_result(result)
        return result

    async def close(self) -> None:
        self._watch_no_more()
        await super().close()

    async def _something_to_read(self) -> None:
        if self._watched_by is None:
            self._watched_by = asyncio.get_running_loop()
            self._watched = self.fileno()
            self._watched_by.add_reader(self._watched, self._hear)
        self._awaited = self._watched_by.create_future()
        try:
            await self._awaited
        finally:
            self._awaited = None

    def _hear(self) -> None:
        if self._awaited is None:
            # it stays unread until the next statement; until then it would be heard without end
            self._watch_no_more()
        elif not self._awaited.done():
            self._awaited.set_result(None)

    def _watch_no_more(self) -> None:
        if self._watched_by is not None:
            self._watched_by.remove_reader(self._watched)
            self._watched_by = None


def _row_of(result: PGresult) -> Callable[[Sequence[Any]], Any]:
    columns = [(result.fname(place) or b"").decode() for place in range(result.nfields)]
    make: Callable[[Sequence[Any]], Any] = namedtuple("Row", columns)._make  # type: ignore[attr-defined]  # noqa: PYI024
    return make


class _Rest:
    """What is left of a generator that stands at `wanted`; for the driver, with what interrupted it, if anything."""

    def __init__(self, steps: _Steps[Any], wanted: Wait, interruption: asyncio.CancelledError | None) -> None:
        self._steps = steps
        self._wanted = wanted
        self._interruption = interruption

    def __next__(self) -> Wait:
        interruption, self._interruption = self._interruption, None
        if interruption is not None:
            raise interruption
        return self._wanted

    def send(self, ready: Ready) -> Wait:
        return self._steps.send(ready)
