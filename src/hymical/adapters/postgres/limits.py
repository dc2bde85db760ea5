"""Rate limits in PostgreSQL, shared by all processes."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from hymical.adapters.postgres.statements import as_json
from hymical.adapters.postgres.transactions import PostgresTransactions
from hymical.domain.limits import Standing, standing
from hymical.ports.clock import Clock
from hymical.ports.limits import Asked, Bucket, Decision

_MICROSECOND = timedelta(microseconds=1)
_FORGOTTEN_AFTER = timedelta(minutes=10)


class PostgresRateLimiter:
    def __init__(self, transactions: PostgresTransactions, clock: Clock) -> None:
        self._transactions = transactions
        self._clock = clock

    async def spend(self, asked: Sequence[Asked]) -> Sequence[Decision]:
        sources = [one.source for one in asked if one.source is not None]
        forms = [one.form for one in asked if one.form is not None]
        if not sources and not forms:
            return [Decision() for _ in asked]
        distinct, places = _distinct(sources)
        distinct_forms, form_places = _distinct(forms)
        turns = Counter[bytes]()
        posts = []
        for one in asked:
            if one.source is not None:
                turns[one.source.key] += 1
            posts.append(
                {
                    "source": one.source and places[one.source.key],
                    "nth": one.source and turns[one.source.key],
                    "form": one.form and form_places[one.form.key],
                }
            )
        parameters = {
            "now": self._clock.pinned(),
            "sources": as_json([_bucket(one) | {"asked": turns[one.key]} for one in distinct]),
            "forms": as_json([_bucket(one) | {"place": form_places[one.key]} for one in distinct_forms]),
            "posts": as_json(posts),
            "forgotten_after": _FORGOTTEN_AFTER,
        }
        spent = {
            bytes(row.key): _Spent(now=row.now, tat=row.tat, granted=row.granted)
            for row in await self._transactions.run("spend_limits", parameters)
        }
        return [_decision(one, spent) for one in asked]


@dataclass(slots=True, kw_only=True)
class _Spent:
    """A bucket after a batch; `asked` counts those that were told how it stands."""

    now: datetime
    tat: datetime
    granted: int
    asked: int = 0

    def next(self, bucket: Bucket) -> Standing:
        self.asked += 1
        # to be told what one by one they would have been told
        to_come = max(0, self.granted - self.asked)
        return standing(
            self.tat - to_come * bucket.limit.interval,
            self.now,
            bucket.limit,
            allowed=self.asked <= self.granted,
        )


def _decision(asked: Asked, spent: Mapping[bytes, _Spent]) -> Decision:
    source = None if asked.source is None else spent[asked.source.key].next(asked.source)
    if asked.form is None or (source is not None and not source.allowed):
        return Decision(source=source)
    return Decision(source=source, form=spent[asked.form.key].next(asked.form))


def _distinct(buckets: Iterable[Bucket]) -> tuple[Sequence[Bucket], Mapping[bytes, int]]:
    """Each bucket once, in the order in which the statement takes them, and the places that they have in it."""
    ordered = sorted({bucket.key: bucket for bucket in buckets}.values(), key=lambda bucket: bucket.key)
    return ordered, {bucket.key: place for place, bucket in enumerate(ordered, 1)}


def _bucket(bucket: Bucket) -> dict[str, Any]:
    return {
        # as PostgreSQL writes bytes
        "key": f"\\x{bucket.key.hex()}",
        "step": bucket.limit.interval // _MICROSECOND,
        "requests": bucket.limit.requests,
    }
