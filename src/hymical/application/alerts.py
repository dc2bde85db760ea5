"""Telling the operator of work that nobody does."""

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from hymical.domain.alerts import Alert, AlertKind
from hymical.domain.deliveries import fan_out
from hymical.domain.destinations import DestinationState
from hymical.domain.errors import NotFound
from hymical.domain.ids import OPERATOR
from hymical.domain.messages import Message, alert_message
from hymical.domain.schedules import Timetable
from hymical.ports.alerts import AlertBook
from hymical.ports.deliveries import DeliveryQueue
from hymical.ports.destinations import DestinationRepository
from hymical.ports.ids import Ids
from hymical.ports.jobs import JobHistory
from hymical.ports.transactions import Transactions
from hymical.ports.workers import WorkerKind, WorkerRegistry

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchOver:
    """Raises an alert once schedules have no live scheduler, or jobs that are due no live worker, and its end.

    Every process calls it now and then, so that whichever is alive tells of those that are not; each alert is told
    of once. A paused queue is left alone on purpose.

    Raises:
        StorageUnavailable: nothing was told; the next call finds it again.
    """

    timetables: Mapping[str, Timetable]
    workers: WorkerRegistry
    history: JobHistory
    book: AlertBook
    destinations: DestinationRepository
    queue: DeliveryQueue
    transactions: Transactions
    ids: Ids

    async def __call__(self) -> None:
        wrong = await self._wrong()
        async with self.transactions.begin():
            changes = await self.book.note(wrong)
            messages = [
                *(alert_message(one, one.kind, self.ids.message(), changes.now) for one in changes.raised),
                *(alert_message(one, one.kind.end, self.ids.message(), changes.now) for one in changes.ended),
            ]
            if messages:
                await self._tell(messages, changes.now)
        for alert in changes.raised:
            _log.warning("%s%s", alert.kind, f": {alert.subject}" if alert.subject else "")
        for alert in changes.ended:
            _log.info("%s%s", alert.kind.end, f": {alert.subject}" if alert.subject else "")

    async def _wrong(self) -> Collection[Alert]:
        schedulers = [
            one for one in await self.workers.all() if one.live and one.kind is WorkerKind.SCHEDULER
        ]
        missing = {Alert(kind=AlertKind.SCHEDULER_MISSING)} if self.timetables and not schedulers else set()
        return missing | {
            Alert(kind=AlertKind.QUEUE_UNSERVED, subject=queue.name)
            # whether there are any, not how many: every process asks this twice a minute
            for queue in await self.history.queues(at_most=1)
            if queue.abandoned
        }

    async def _tell(self, messages: Sequence[Message], now: datetime) -> None:
        try:
            operator = await self.destinations.get(OPERATOR)
        except NotFound:
            return
        if operator.state is DestinationState.DISABLED:
            # the settings name nobody any more
            return
        owed = [
            delivery
            for message in messages
            for delivery in fan_out(message, [operator], now=now, new_id=self.ids.delivery)
        ]
        await self.queue.owe(messages, owed)
