"""The ledger of schedules in PostgreSQL."""

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import func
from sqlalchemy.dialects.postgresql import insert

from hymical.adapters.postgres.errors import translated
from hymical.adapters.postgres.tables import schedules
from hymical.adapters.postgres.transactions import PostgresTransactions
from hymical.domain.ids import JobId
from hymical.ports.clock import Clock
from hymical.ports.schedules import KEPT_TICKS, Standing, Standings, Tick


class PostgresScheduleLedger:
    def __init__(self, transactions: PostgresTransactions, clock: Clock) -> None:
        self._transactions = transactions
        self._clock = clock

    async def standings(self) -> Standings:
        found = await self._transactions.run("read_standings", {"now": self._clock.pinned()})
        rows = [row._asdict() for row in found]
        return Standings(
            now=rows[0]["now"], of={row["name"]: _standing(row) for row in rows if row["name"] is not None}
        )

    async def register(self, names: Collection[str]) -> None:
        parameters = {"now": self._clock.pinned(), "names": sorted(names)}
        await self._transactions.run("register_schedules", parameters)

    async def record(
        self, name: str, ticks: Mapping[datetime, JobId], *, through: datetime
    ) -> Collection[JobId]:
        parameters = {
            "now": self._clock.pinned(),
            "name": name,
            "due_ats": list(ticks.keys()),
            "job_ids": list(ticks.values()),
            "through": through,
            "kept": KEPT_TICKS,
        }
        return {row.job_id for row in await self._transactions.run("record_ticks", parameters)}

    async def record_by_hand(self, name: str, job_id: JobId) -> None:
        parameters = {"now": self._clock.pinned(), "name": name, "job_id": job_id}
        await self._transactions.run("record_run_by_hand", parameters)

    async def pause(self, name: str) -> None:
        now = self._clock.pinned() or func.clock_timestamp()
        await self._write(name, {"since": now, "paused_at": now}, {"paused_at": now}, where_paused=False)

    async def resume(self, name: str) -> None:
        now = self._clock.pinned() or func.clock_timestamp()
        await self._write(name, {"since": now}, {"since": now, "paused_at": None}, where_paused=True)

    async def _write(
        self, name: str, new: Mapping[str, Any], change: Mapping[str, Any], *, where_paused: bool
    ) -> None:
        paused = schedules.c.paused_at.is_not(None)
        command = (
            insert(schedules)
            .values(name=name, **new)
            .on_conflict_do_update(
                index_elements=[schedules.c.name], set_=change, where=paused if where_paused else ~paused
            )
        )
        with translated():
            async with self._transactions.connection() as connection:
                await connection.execute(command)


def _standing(row: Mapping[Any, Any]) -> Standing:
    return Standing(
        since=row["since"],
        paused_at=row["paused_at"],
        last=Tick(due_at=row["due_at"], job_id=JobId(row["job_id"]), enqueued_at=row["enqueued_at"])
        if row["job_id"] is not None
        else None,
    )
