"""What was measured, what it is held against, and how both are shown: one table, and JSON."""

import json
import os
import platform
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar

import psutil  # type: ignore[import-untyped]  # it ships no types

_Amount = TypeVar("_Amount")


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How much is done for a figure; a quick run has one round, and less in it."""

    quick: bool
    rounds: int

    @classmethod
    def of(cls, *, quick: bool, rounds: int | None = None) -> Self:
        return cls(quick=quick, rounds=rounds or (1 if quick else 2))

    def choose(self, full: _Amount, quick: _Amount) -> _Amount:
        return quick if self.quick else full


@dataclass(frozen=True, slots=True)
class Limit:
    """What a figure is held against, measured in the same rounds of the same run."""

    name: str
    rounds: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Target:
    """A bound on the ratio to the limit, or on the figure itself where it has none."""

    at_least: float | None = None
    at_most: float | None = None

    def __str__(self) -> str:
        return f"≥ {self.at_least:g}" if self.at_least is not None else f"≤ {self.at_most:g}"

    def is_reached(self, value: float) -> bool:
        if self.at_least is not None:
            return value >= self.at_least
        return self.at_most is None or value <= self.at_most


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One line of the table: a value for each round, of which the median counts."""

    group: str
    name: str
    unit: str
    rounds: tuple[float, ...]
    limit: Limit | None = None
    target: Target | None = None

    @property
    def value(self) -> float:
        return statistics.median(self.rounds)

    @property
    def ratios(self) -> tuple[float, ...]:
        """To the limit, round by round: what else the machine did in a round met both."""
        if self.limit is None:
            return ()
        return tuple(ours / theirs for ours, theirs in zip(self.rounds, self.limit.rounds, strict=True))

    @property
    def is_reached(self) -> bool | None:
        """None where nothing is asked."""
        if self.target is None:
            return None
        return self.target.is_reached(statistics.median(self.ratios) if self.ratios else self.value)

    def as_json(self) -> dict[str, Any]:
        return {
            "group": self.group,
            "name": self.name,
            "unit": self.unit,
            "median": self.value,
            "rounds": list(self.rounds),
            "limit": self.limit and {"name": self.limit.name, "rounds": list(self.limit.rounds)},
            "ratio": statistics.median(self.ratios) if self.ratios else None,
            "to_reach": self.target and str(self.target),
            "reached": self.is_reached,
        }


def percentile(values: Sequence[float], percent: int) -> float:
    if len(values) == 1:
        return values[0]
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]


def merged(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One run of all their groups, each as the last of them measured it."""
    latest = {figure["group"]: one for one in runs for figure in one["figures"]}
    used = [one for one in runs if any(one is run for run in latest.values())]
    return runs[0] | {
        "figures": [
            figure for group, one in latest.items() for figure in one["figures"] if figure["group"] == group
        ],
        "revision": ", ".join(dict.fromkeys(one["revision"] for one in used)),
    }


def table(figures: Sequence[Figure]) -> str:
    heads = ("group", "what", "measured", "limit in the same run", "", "ratio", "to reach", "")
    rows = [heads, *(_cells(figure) for figure in figures)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(heads))]
    numeric = {2, 4, 5}
    return "\n".join(
        "  ".join(
            cell.rjust(width) if column in numeric else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


def _cells(figure: Figure) -> tuple[str, ...]:
    limit = figure.limit
    return (
        figure.group,
        figure.name,
        f"{_spread(figure.rounds, figure.value)} {figure.unit}",
        limit.name if limit else "",
        f"{statistics.median(limit.rounds):,.{_places(statistics.median(limit.rounds))}f}" if limit else "",
        _spread(figure.ratios, statistics.median(figure.ratios)) if figure.ratios else "",
        str(figure.target) if figure.target else "",
        {True: "reached", False: "MISSED", None: ""}[figure.is_reached],
    )


def _spread(rounds: Sequence[float], median: float) -> str:
    places = _places(median)
    shown = f"{median:,.{places}f}"
    if len(rounds) == 1:
        return shown
    return f"{shown} ({min(rounds):,.{places}f} to {max(rounds):,.{places}f})"


def _places(value: float) -> int:
    return next((places for places, bound in ((0, 100), (1, 10), (2, 0.1)) if abs(value) >= bound), 3)


def report(figures: Sequence[Figure], *, quick: bool, seconds: float) -> dict[str, Any]:
    return {
        "machine": machine(),
        "finished_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "quick": quick,
        "seconds": round(seconds),
        "load_average": [round(one, 2) for one in os.getloadavg()],
        "figures": [figure.as_json() for figure in figures],
    }


def machine() -> dict[str, Any]:
    """What figures depend on; nothing that says whose machine it is."""
    return {
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "memory_gb": round(psutil.virtual_memory().total / 2**30),
        "system": f"{platform.system()} {platform.release().split('-')[0]}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
    }


def _cpu() -> str:
    try:
        described = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.machine()
    names = [
        line.partition(":")[2].strip() for line in described.splitlines() if line.startswith("model name")
    ]
    return names[0] if names else platform.machine()


def write_json(content: dict[str, Any], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
