"""Rate limits in PostgreSQL, shared by all processes."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

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
        distinct = _distinct(sources)
        place = {bucket.key: number for number, bucket in enumerate(distinct, 1)}
        turns = Counter[bytes]()
        nths = list[int | None]()
        for one in asked:
            if one.source is None:
                nths.append(None)
                continue
            turns[one.source.key] += 1
            nths.append(turns[one.source.key])
        parameters = {
            "now": self._clock.pinned(),
            **_arrays("source", distinct),
            "source_asked": [turns[bucket.key] for bucket in distinct],
            **_arrays("form", _distinct(forms)),
            "places": [None if one.source is None else place[one.source.key] for one in asked],
            "nths": nths,
            "of_forms": [None if one.form is None else one.form.key for one in asked],
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


def _distinct(buckets: Iterable[Bucket]) -> Sequence[Bucket]:
    """Each bucket once, in the order in which the statement takes them."""
    return sorted({bucket.key: bucket for bucket in buckets}.values(), key=lambda bucket: bucket.key)


def _arrays(kind: str, buckets: Sequence[Bucket]) -> dict[str, Any]:
    return {
        f"{kind}_keys": [bucket.key for bucket in buckets],
        f"{kind}_steps": [bucket.limit.interval // _MICROSECOND for bucket in buckets],
        f"{kind}_requests": [bucket.limit.requests for bucket in buckets],
    }
