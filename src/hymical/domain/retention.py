"""How long what is over is kept, and in what steps it is removed."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from enum import StrEnum

_FEWEST, _MOST = 10, 1_000
_SLOW, _QUICK = 0.5, 0.1


class Kind(StrEnum):
    """What a clean-up removes, in this order: what hangs on nothing any more goes last."""

    EXPORTS = "exports"
    SUBMISSIONS = "submissions"
    DELIVERIES = "deliveries"
    JOBS = "jobs"
    RATE_LIMITS = "rate_limits"


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionPolicy:
    """`submissions` and `history` say how long they are kept; None for ever."""

    submissions: timedelta | None
    history: timedelta | None

    def age(self, kind: Kind) -> timedelta | None:
        """How old something is to be before it is removed; None where it is kept."""
        match kind:
            case Kind.SUBMISSIONS:
                return self.submissions
            case Kind.DELIVERIES | Kind.JOBS:
                return self.history
            case Kind.EXPORTS | Kind.RATE_LIMITS:
                # each says itself when its time is up
                return timedelta(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanUpState:
    """How far a clean-up has come: `behind` within `kind`, None for `kind` once all is done."""

    kind: Kind | None = Kind.EXPORTS
    behind: str = ""
    removed: Mapping[Kind, int] = field(default_factory=dict)

    def swept(self, count: int, end: str | None) -> "CleanUpState":
        """After a batch; its `end` of None says that nothing of this kind is left to look at."""
        assert self.kind is not None  # noqa: S101  there was a batch
        removed = {**self.removed, self.kind: self.removed.get(self.kind, 0) + count}
        return replace(self, behind=end, removed=removed) if end else replace(self.over(), removed=removed)

    def over(self) -> "CleanUpState":
        """Nothing more of this kind: on to the next one."""
        kinds = list(Kind)
        rest = kinds[kinds.index(self.kind) + 1 :] if self.kind else []
        return replace(self, kind=rest[0] if rest else None, behind="")


def next_looks(looks: int, seconds: float) -> int:
    """How much the next batch looks at, after one that took so long: less when slow, so that nobody waits for it."""
    if seconds > _SLOW:
        return max(_FEWEST, looks // 2)
    return min(_MOST, looks * 2) if seconds < _QUICK else looks
