"""Destinations, and how well they do, in PostgreSQL."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, delete, func, insert, literal, select, update
from sqlalchemy.dialects.postgresql import insert as upsert

from hymical.adapters.postgres.errors import translated
from hymical.adapters.postgres.rows import DestinationRows
from hymical.adapters.postgres.tables import destination_trouble, destinations, forms
from hymical.adapters.postgres.transactions import PostgresTransactions
from hymical.domain.destinations import (
    Destination,
    DestinationChange,
    DestinationState,
    NewDestination,
    Trouble,
)
from hymical.domain.errors import AlreadyExists, NotFound
from hymical.domain.ids import DestinationId, FormId
from hymical.domain.signing import SigningSecret
from hymical.ports.clock import Clock
from hymical.ports.destinations import Troubled
from hymical.ports.secrets import SecretCipher

_there = destinations.c.deleted_at.is_(None)


class PostgresDestinationRepository:
    def __init__(self, transactions: PostgresTransactions, clock: Clock, cipher: SecretCipher) -> None:
        self._transactions = transactions
        self._clock = clock
        self._rows = DestinationRows(cipher)

    async def add(self, destination: NewDestination) -> Destination:
        values = {
            "id": destination.id,
            "form_id": destination.form_id,
            "url": destination.url,
            "state": DestinationState.ACTIVE,
            "secrets": self._rows.sealed_secrets(destination.secrets),
            "headers": self._rows.sealed_headers(destination.headers),
            "max_in_flight": destination.max_in_flight,
            "created_at": _now(self._clock),
        }
        command = insert(destinations).values(values).returning(destinations)
        meanings = {
            "destinations_form_id_fkey": NotFound("form", destination.form_id or ""),
            "destinations_pkey": AlreadyExists("destination", destination.id),
        }
        with translated(meanings):
            async with self._transactions.connection() as connection:
                return self._rows.destination((await connection.execute(command)).mappings().one())

    async def get(self, destination_id: DestinationId) -> Destination:
        query = select(destinations).where(destinations.c.id == destination_id, _there)
        with translated():
            async with self._transactions.connection() as connection:
                row = (await connection.execute(query)).mappings().one_or_none()
        if row is None:
            raise NotFound("destination", destination_id)
        return self._rows.destination(row)

    async def page(self, form_id: FormId, *, after: str | None, limit: int) -> Sequence[Destination]:
        query = (
            select(destinations)
            .where(destinations.c.form_id == form_id, _there)
            .order_by(destinations.c.id)
            .limit(limit)
        )
        if after is not None:
            query = query.where(destinations.c.id > after)
        known = select(literal(1)).where(forms.c.id == form_id)
        with translated():
            async with self._transactions.connection() as connection:
                page = [self._rows.destination(row) for row in (await connection.execute(query)).mappings()]
                if not page and (await connection.execute(known)).one_or_none() is None:
                    raise NotFound("form", form_id)
        return page

    async def change(self, destination_id: DestinationId, change: DestinationChange) -> Destination:
        values = {
            "url": change.url,
            "headers": None if change.headers is None else self._rows.sealed_headers(change.headers),
            "max_in_flight": change.max_in_flight,
            "state": change.state,
        }
        command = (
            update(destinations)
            .where(destinations.c.id == destination_id, _there)
            # the id stands for "nothing to change", which is an answer too
            .values(
                {"id": destination_id} | {name: value for name, value in values.items() if value is not None}
            )
            .returning(destinations)
        )
        forget = delete(destination_trouble).where(destination_trouble.c.destination_id == destination_id)
        with translated():
            async with self._transactions.connection() as connection:
                row = (await connection.execute(command)).mappings().one_or_none()
                if row is None:
                    raise NotFound("destination", destination_id)
                await connection.execute(forget)
        return self._rows.destination(row)

    async def lock(self, destination_id: DestinationId) -> tuple[Destination, datetime]:
        query = (
            select(destinations, _as_now(self._clock))
            .where(destinations.c.id == destination_id, _there)
            .with_for_update(key_share=True)
        )
        with translated():
            async with self._transactions.connection() as connection:
                row = (await connection.execute(query)).mappings().one_or_none()
        if row is None:
            raise NotFound("destination", destination_id)
        return self._rows.destination(row, readable=True), row["now"]

    async def set_secrets(self, destination_id: DestinationId, secrets: Sequence[SigningSecret]) -> None:
        command = (
            update(destinations)
            .where(destinations.c.id == destination_id)
            .values(secrets=self._rows.sealed_secrets(secrets))
        )
        with translated():
            async with self._transactions.connection() as connection:
                await connection.execute(command)

    async def delete(self, destination_id: DestinationId) -> None:
        command = (
            update(destinations)
            .where(destinations.c.id == destination_id, _there)
            .values(deleted_at=_now(self._clock), secrets=[], headers=[])
            .returning(destinations.c.id)
        )
        forget = delete(destination_trouble).where(destination_trouble.c.destination_id == destination_id)
        with translated():
            async with self._transactions.connection() as connection:
                if (await connection.execute(command)).one_or_none() is None:
                    raise NotFound("destination", destination_id)
                await connection.execute(forget)


class PostgresDestinationHealth:
    def __init__(self, transactions: PostgresTransactions, clock: Clock, cipher: SecretCipher) -> None:
        self._transactions = transactions
        self._clock = clock
        self._rows = DestinationRows(cipher)

    async def page(
        self, *, after: DestinationId | None, limit: int
    ) -> Sequence[tuple[Destination, Trouble | None]]:
        query = (
            select(destinations, destination_trouble)
            .outerjoin(destination_trouble, destination_trouble.c.destination_id == destinations.c.id)
            .where(_there)
            .order_by(destinations.c.id)
            .limit(limit)
        )
        if after is not None:
            query = query.where(destinations.c.id > after)
        with translated():
            async with self._transactions.connection() as connection:
                rows = list((await connection.execute(query)).mappings())
        return [
            (self._rows.destination(row), None if row["destination_id"] is None else _trouble(row))
            for row in rows
        ]

    async def lock(self, destination_ids: Collection[DestinationId]) -> Troubled:
        locked = (
            select(destinations)
            .where(destinations.c.id.in_(sorted(destination_ids)), _there)
            .order_by(destinations.c.id)
            .with_for_update(key_share=True)
        )
        known = select(destination_trouble).where(destination_trouble.c.destination_id.in_(destination_ids))
        with translated():
            async with self._transactions.connection() as connection:
                found = [self._rows.destination(row) for row in (await connection.execute(locked)).mappings()]
                # read after the lock, so that nobody's news is overwritten
                trouble = {
                    row["destination_id"]: _trouble(row)
                    for row in (await connection.execute(known)).mappings()
                }
                now: datetime = (await connection.execute(select(_as_now(self._clock)))).scalar_one()
        return Troubled(
            now=now,
            destinations={
                destination.id: (destination, trouble.get(destination.id)) for destination in found
            },
        )

    async def save(self, trouble: Mapping[DestinationId, Trouble | None]) -> None:
        over = [destination_id for destination_id, left in trouble.items() if left is None]
        left = [
            {
                "destination_id": destination_id,
                "failing_since": one.failing_since,
                "failures_in_a_row": one.failures_in_a_row,
                "warned": one.warned,
                "openings": one.openings,
                "held_until": one.held_until,
            }
            for destination_id, one in trouble.items()
            if one is not None
        ]
        with translated():
            async with self._transactions.connection() as connection:
                if over:
                    await connection.execute(
                        delete(destination_trouble).where(destination_trouble.c.destination_id.in_(over))
                    )
                if left:
                    command = upsert(destination_trouble).values(left)
                    await connection.execute(
                        command.on_conflict_do_update(
                            index_elements=["destination_id"],
                            set_={
                                name: command.excluded[name] for name in left[0] if name != "destination_id"
                            },
                        )
                    )

    async def disable(self, destination_id: DestinationId) -> None:
        command = (
            update(destinations)
            .where(destinations.c.id == destination_id)
            .values(state=DestinationState.DISABLED)
        )
        with translated():
            async with self._transactions.connection() as connection:
                await connection.execute(command)


def _now(clock: Clock) -> datetime | ColumnElement[datetime]:
    return clock.pinned() or func.clock_timestamp()


def _as_now(clock: Clock) -> ColumnElement[datetime]:
    pinned = clock.pinned()
    now = func.clock_timestamp() if pinned is None else literal(pinned, destinations.c.created_at.type)
    return now.label("now")


def _trouble(row: Mapping[Any, Any]) -> Trouble:
    return Trouble(
        **{column.name: row[column.name] for column in destination_trouble.c if not column.primary_key}
    )
