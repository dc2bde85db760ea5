"""Running a scheduler in this process."""

import asyncio
import logging
import signal

from hymical.entrypoints.bootstrap.resources import Role, open_container
from hymical.entrypoints.bootstrap.settings import Settings
from hymical.entrypoints.scheduler.schedules import Scheduler
from hymical.entrypoints.watching import watching
from hymical.entrypoints.worker.presence import present
from hymical.ports.workers import WorkerKind

_log = logging.getLogger(__name__)


async def keep_schedules(settings: Settings) -> None:
    """Enqueues what is due until SIGTERM or SIGINT.

    Raises:
        InvalidValue: a schedule cannot be run.
        SchemaMismatch, StorageUnavailable: before anything is enqueued.
    """
    async with open_container(settings, Role.SCHEDULER) as container:
        await container.schema().check()
        scheduler = Scheduler(container.evaluate_schedules(), container.ids())
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, scheduler.stop)
        _log.info("scheduler ready: %d schedules", len(container.timetables()))
        async with (
            present(
                container.ids().worker(),
                lambda: 0,
                kind=WorkerKind.SCHEDULER,
                report=container.report_presence(),
                leave=container.leave_work(),
            ),
            watching(container.watch_over()),
        ):
            await scheduler.run()
        _log.info("scheduler stopped")
