"""What is wrong, in memory."""

from collections.abc import Collection

from hymical.adapters.memory.store import MemoryStore, NotedAlert
from hymical.domain.alerts import PATIENCE, Alert
from hymical.ports.alerts import AlertChanges
from hymical.ports.clock import Clock


class MemoryAlertBook:
    def __init__(self, store: MemoryStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def note(self, wrong: Collection[Alert]) -> AlertChanges:
        now, before = self._clock.now(), self._store.rows.alerts
        noted = {alert: before.get(alert, NotedAlert(since=now, raised=False)) for alert in wrong}
        raised = [alert for alert, note in noted.items() if not note.raised and note.since <= now - PATIENCE]
        ended = [alert for alert, note in before.items() if alert not in noted and note.raised]
        self._store.rows.alerts = noted | {
            alert: NotedAlert(since=noted[alert].since, raised=True) for alert in raised
        }
        return AlertChanges(raised=raised, ended=ended, now=now)
