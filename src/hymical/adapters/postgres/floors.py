"""Where claims begin to look: behind what this process has consumed and vacuum could not yet remove."""

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
    """What a destination has ready lies behind (`due_at`, `id`), and its leases began at `since` or later.

    `looked` is the monotonic time of the last look without it, `noted` of the last claim.
    """

    due_at: datetime
    id: str
    since: datetime
    looked: float
    noted: float


class Floors:
    """Those of the destinations that were claimed from last."""

    def __init__(self) -> None:
        self._of: dict[str, Floor] = {}

    def stretches(
        self, after: str, limit: int, looked: float
    ) -> Sequence[Mapping[str, str | datetime | None]]:
        """The way once around all destinations, from behind `after` to itself.

        Each stretch is a destination, with its floor where one is known, and those between it and the next one.
        """
        known = sorted(self._of)
        here = bisect_right(known, after)
        ahead = known[here:][:limit]
        way = _way(after, ahead, _END)
        if after:
            again = [name for name in known[:here] if name != after][: limit - len(ahead)]
            way += [*_way("", again, after), (after, after, after)]
        return [
            _stretch(name, behind, before, self._of.get(name or ""), looked) for name, behind, before in way
        ]

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
            keep(self._of, name, Floor(due_at, id_, since, before.looked if before else looked, looked))

    def forget(self, names: Collection[str]) -> None:
        for name in names:
            self._of.pop(name, None)


def _way(start: str, known: Sequence[str], end: str) -> list[tuple[str | None, str, str]]:
    """From behind `start` to before `end`: a destination or none, and between what those lie that follow it."""
    stops = [start, *known, end]
    return [
        (name, behind, before) for name, (behind, before) in zip((None, *known), pairwise(stops), strict=True)
    ]


def _stretch(
    name: str | None, behind: str, before: str, floor: Floor | None, looked: float
) -> Mapping[str, str | datetime | None]:
    in_full = floor is None or looked - floor.looked >= FULL_LOOK_EVERY
    return {
        "destination_id": name,
        "due_at": "-infinity" if floor is None or in_full else floor.due_at,
        "id": "" if floor is None or in_full else floor.id,
        # what is in flight cannot lie behind it, unless the clock goes back while nobody looks
        "since": floor.since if floor and looked - floor.noted < FULL_LOOK_EVERY else "-infinity",
        "behind": behind,
        "before": before,
    }
