"""Where a claim begins to look at a destination: behind what this process has consumed and vacuum could not yet remove."""

from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any, TypeVar

BEGINNING = datetime(1, 1, 1, tzinfo=UTC)
# what commits late, comes due again, or is handed back by others lies behind a floor until the next full look
FULL_LOOK_EVERY = 2.0
UNSETTLED = timedelta(seconds=1)
_KEPT = 256
# behind every id
_END = "~"
_Value = TypeVar("_Value")


def keep(store: dict[str, _Value], key: str, value: _Value) -> None:
    """As the newest; the oldest goes where there are too many."""
    store.pop(key, None)
    store[key] = value
    if len(store) > _KEPT:
        del store[next(iter(store))]


@dataclass(frozen=True, slots=True)
class Floor:
    """What one destination has ready lies behind (`due_at`, `id`), and all that it has in flight was leased at `since` or later.

    `looked` is the monotonic time of the last look without it.
    """

    due_at: datetime
    id: str
    since: datetime
    looked: float


class Floors:
    """Those of the destinations that were claimed from last."""

    def __init__(self) -> None:
        self._of: dict[str, Floor] = {}

    def stretches(self, after: str, limit: int, looked: float) -> Sequence[Mapping[str, str | None]]:
        """The way once around all destinations, from behind `after`: at each one that is known its floor, and what lies between
        it and the next.
        """
        known = sorted(name for name, floor in self._of.items() if looked - floor.looked < FULL_LOOK_EVERY)
        here = bisect_right(known, after)
        ahead = known[here:][:limit]
        way = [self._stretch(None, after, (*ahead[:1], _END)[0])]
        way += [self._stretch(name, name, before) for name, before in pairwise((*ahead, _END))]
        if after:
            round_again = [name for name in known[:here] if name != after][: limit - len(ahead)]
            stops = (*round_again, after)
            way.append(self._stretch(None, "", stops[0]))
            way += [self._stretch(name, name, before) for name, before in pairwise(stops)]
            way.append(self._stretch(after, after, after))
        return way

    def _stretch(self, name: str | None, behind: str, before: str) -> Mapping[str, str | None]:
        floor = self._of.get(name or "")
        return {
            "destination_id": name,
            "due_at": floor.due_at.isoformat() if floor else "-infinity",
            "id": floor.id if floor else "",
            "since": floor.since.isoformat() if floor else "-infinity",
            "behind": behind,
            "before": before,
        }

    def note(self, lanes: Mapping[str, Any], taken: Sequence[Any], looked: float) -> None:
        """What a claim has found: its rows, those taken in the order in which they came due."""
        last = {row.destination_id: (row.came_due_at, row.id) for row in taken}
        for name, lane in lanes.items():
            if not lane.locked:
                continue
            before = self._of.get(name)
            if before is not None and looked - before.looked >= FULL_LOOK_EVERY:
                before = None
            due_at, id_ = last.get(name) or ((before.due_at, before.id) if before else (BEGINNING, ""))
            due_at, id_ = min((due_at, id_), (lane.now - UNSETTLED, ""))
            since = min(lane.oldest or lane.now, lane.now)
            keep(self._of, name, Floor(due_at, id_, since, before.looked if before else looked))

    def forget(self, names: Collection[str]) -> None:
        for name in names:
            self._of.pop(name, None)

    def clear(self) -> None:
        self._of.clear()
