"""Running a worker in this process."""

import asyncio
import logging
import signal
from collections.abc import Sequence
from datetime import timedelta
from difflib import get_close_matches

from hymical.domain.signing import Secret
from hymical.entrypoints.bootstrap.container import Container
from hymical.entrypoints.bootstrap.garbage import collect_less_often
from hymical.entrypoints.bootstrap.resources import Role, open_container
from hymical.entrypoints.bootstrap.settings import Settings
from hymical.entrypoints.jobs.queues import QUEUES
from hymical.entrypoints.watching import watching
from hymical.entrypoints.worker.deliveries import DeliveryWorker, Pace
from hymical.entrypoints.worker.jobs import JobPace, JobWorker
from hymical.entrypoints.worker.presence import present

_log = logging.getLogger(__name__)
_TO_SETTLE = timedelta(seconds=5)


def delivery_worker(container: Container) -> DeliveryWorker:
    """A worker out of the container's parts."""
    settings = container.settings()
    return DeliveryWorker(
        claim_due=container.claim_due(),
        send=container.send_delivery(),
        settle=container.settle_finished(),
        release=container.release_unsent(),
        wakeups=container.wakeups(),
        ids=container.ids(),
        pace=Pace(
            poll=settings.worker_poll_seconds,
            batch_size=settings.worker_batch_size,
            concurrency=settings.worker_concurrency,
            drain=settings.attempt_deadline + _TO_SETTLE,
        ),
    )


def job_worker(container: Container, queues: Sequence[str]) -> JobWorker:
    """A worker of these queues out of the container's parts. Raises `JobTypesInvalid`."""
    settings = container.settings()
    return JobWorker(
        queues=queues,
        claim=container.claim_jobs(),
        run_job=container.run_job(),
        settle=container.settle_jobs(),
        renew=container.renew_jobs(),
        check=container.check_jobs(),
        release=container.release_jobs(),
        wakeups=container.wakeups(),
        ids=container.ids(),
        pace=JobPace(
            poll_min=settings.job_poll_min_seconds,
            poll_max=settings.job_poll_max_seconds,
            batch_size=settings.job_batch_size,
            concurrency=settings.job_concurrency,
            lease=settings.job_lease_seconds,
            drain=settings.job_drain_seconds,
        ),
    )


async def work(settings: Settings, queues: Sequence[str] = ()) -> None:
    """Delivers, or runs the jobs of `queues`, until SIGTERM or SIGINT; then lets end what is in flight.

    Raises:
        SchemaMismatch, StorageUnavailable, JobTypesInvalid, InvalidValue: before anything is claimed.
    """
    async with open_container(settings, Role.JOB_WORKER if queues else Role.WORKER) as container:
        await container.schema().check()
        worker = job_worker(container, queues) if queues else delivery_worker(container)
        watch_over = container.watch_over()
        _warn_of_unknown(queues, container)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, worker.stop)
        await container.set_operator()(
            settings.alert_webhook_url,
            Secret(settings.alert_webhook_secret.get_secret_value())
            if settings.alert_webhook_secret
            else None,
        )
        collect_less_often()
        _log.info("worker ready: %s", f"jobs of {', '.join(queues)}" if queues else "deliveries")
        async with (
            present(
                container.ids().worker(),
                lambda: worker.in_flight,
                queues=queues,
                report=container.report_presence(),
                leave=container.leave_work(),
            ),
            watching(watch_over),
        ):
            await worker.run()
        _log.info("worker stopped")


def _warn_of_unknown(queues: Sequence[str], container: Container) -> None:
    known = sorted({*QUEUES, *container.job_registry().queues}) if queues else []
    for queue in queues:
        if queue not in known:
            near = get_close_matches(queue, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
            _log.warning("no type of job of this build uses the queue %s; %s", queue, hint)
