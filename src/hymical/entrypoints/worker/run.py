"""Running a worker in this process."""

import asyncio
import logging
import signal
from datetime import timedelta

from hymical.domain.signing import Secret
from hymical.entrypoints.bootstrap.container import Container
from hymical.entrypoints.bootstrap.resources import Role, open_container
from hymical.entrypoints.bootstrap.settings import Settings
from hymical.entrypoints.worker.deliveries import DeliveryWorker, Pace
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


async def work(settings: Settings) -> None:
    """Delivers until SIGTERM or SIGINT; then claims nothing more and lets requests in flight end.

    Raises:
        SchemaMismatch, StorageUnavailable: before anything is claimed.
    """
    async with open_container(settings, Role.WORKER) as container:
        await container.schema().check()
        worker = delivery_worker(container)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, worker.stop)
        await container.set_operator()(
            settings.alert_webhook_url,
            Secret(settings.alert_webhook_secret.get_secret_value())
            if settings.alert_webhook_secret
            else None,
        )
        _log.info("worker ready")
        async with present(
            container.ids().worker(),
            lambda: worker.in_flight,
            report=container.report_presence(),
            leave=container.leave_work(),
        ):
            await worker.run()
        _log.info("worker stopped")
