"""A worker's presence row, renewed while it runs."""

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import hymical
from hymical.application.workers import LeaveWork, ReportPresence
from hymical.domain.errors import StorageUnavailable
from hymical.domain.ids import WorkerId
from hymical.ports.workers import WorkerKind, WorkerPresence

_EVERY_SECONDS = 10.0


@asynccontextmanager
async def present(
    worker_id: WorkerId,
    in_flight: Callable[[], int],
    *,
    queues: Sequence[str] = (),
    kind: WorkerKind = WorkerKind.WORKER,
    report: ReportPresence,
    leave: LeaveWork,
) -> AsyncIterator[None]:
    """Says every ten seconds that this worker is there, and at the end that it has left."""

    async def reporting() -> None:
        while True:
            with contextlib.suppress(StorageUnavailable):
                await report(
                    WorkerPresence(
                        id=worker_id,
                        host=socket.gethostname(),
                        pid=os.getpid(),
                        version=hymical.__version__,
                        kind=kind,
                        in_flight=in_flight(),
                        queues=tuple(queues),
                    )
                )
            await asyncio.sleep(_EVERY_SECONDS)

    task = asyncio.create_task(reporting())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        with contextlib.suppress(StorageUnavailable):
            await leave(worker_id)
