"""Destinations in PostgreSQL."""

from collections.abc import Sequence

from sqlalchemy import func, insert, literal, select

from hymical.adapters.postgres import rows
from hymical.adapters.postgres.errors import translated
from hymical.adapters.postgres.tables import destinations, forms
from hymical.adapters.postgres.transactions import PostgresTransactions
from hymical.domain.destinations import Destination, DestinationState, NewDestination
from hymical.domain.errors import NotFound
from hymical.domain.ids import DestinationId, FormId
from hymical.ports.clock import Clock


class PostgresDestinationRepository:
    def __init__(self, transactions: PostgresTransactions, clock: Clock) -> None:
        self._transactions = transactions
        self._clock = clock

    async def add(self, destination: NewDestination) -> Destination:
        values = {
            "id": destination.id,
            "form_id": destination.form_id,
            "url": destination.url,
            "state": DestinationState.ACTIVE,
            "secrets": rows.secrets_to_json(destination.secrets),
            "created_at": self._clock.pinned() or func.clock_timestamp(),
        }
        with translated({"destinations_form_id_fkey": NotFound("form", destination.form_id)}):
            async with self._transactions.connection() as connection:
                row = (
                    await connection.execute(insert(destinations).values(values).returning(destinations))
                ).one()
        return rows.destination(**row._mapping)  # noqa: SLF001

    async def get(self, destination_id: DestinationId) -> Destination:
        query = select(destinations).where(destinations.c.id == destination_id)
        with translated():
            async with self._transactions.connection() as connection:
                row = (await connection.execute(query)).one_or_none()
        if row is None:
            raise NotFound("destination", destination_id)
        return rows.destination(**row._mapping)  # noqa: SLF001

    async def page(self, form_id: FormId, *, after: str | None, limit: int) -> Sequence[Destination]:
        query = (
            select(destinations)
            .where(destinations.c.form_id == form_id)
            .order_by(destinations.c.id)
            .limit(limit)
        )
        if after is not None:
            query = query.where(destinations.c.id > after)
        known = select(literal(1)).where(forms.c.id == form_id)
        with translated():
            async with self._transactions.connection() as connection:
                page = [rows.destination(**row._mapping) for row in await connection.execute(query)]  # noqa: SLF001
                if not page and (await connection.execute(known)).one_or_none() is None:
                    raise NotFound("form", form_id)
        return page
