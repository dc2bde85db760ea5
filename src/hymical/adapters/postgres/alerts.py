"""What is wrong, in PostgreSQL."""

from collections.abc import Collection

from hymical.adapters.postgres.transactions import PostgresTransactions
from hymical.domain.alerts import PATIENCE, Alert, AlertKind
from hymical.ports.alerts import AlertChanges
from hymical.ports.clock import Clock


class PostgresAlertBook:
    def __init__(self, transactions: PostgresTransactions, clock: Clock) -> None:
        self._transactions = transactions
        self._clock = clock

    async def note(self, wrong: Collection[Alert]) -> AlertChanges:
        ordered = list(wrong)
        parameters = {
            "now": self._clock.pinned(),
            "kinds": [alert.kind for alert in ordered],
            "subjects": [alert.subject for alert in ordered],
            "patience": PATIENCE,
        }
        rows = await self._transactions.run("note_alerts", parameters)
        changed = [
            (Alert(kind=AlertKind(row.kind), subject=row.subject), row.raised)
            for row in rows
            if row.kind is not None
        ]
        return AlertChanges(
            raised=[alert for alert, raised in changed if raised],
            ended=[alert for alert, raised in changed if not raised],
            now=rows[0].now,
        )
