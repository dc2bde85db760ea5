"""Plots and a table of runs, for the documentation: `python -m bench.plots build/bench.json docs/performance`.

Several files, of runs of some groups each, make one table: a later file's groups take the place of an earlier one's.
Each revision is named; the machine is that of the first.
"""

import json
import re
import statistics
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pygal  # type: ignore[import-untyped]  # it ships no types
from pygal.graph.graph import Graph  # type: ignore[import-untyped]
from pygal.style import CleanStyle  # type: ignore[import-untyped]

from bench.figures import merged

_Figures = Sequence[dict[str, Any]]
_COMMENT = re.compile("<!--.*?-->", re.DOTALL)


def main(said: Sequence[Path], folder: Path) -> None:
    runs = [json.loads(one.read_text(encoding="utf-8")) for one in said]
    run = merged(runs)
    folder.mkdir(parents=True, exist_ok=True)
    for name, plot in _PLOTS.items():
        found = [one for one in run["figures"] if one["group"] == name]
        if found:
            drawn = _COMMENT.sub("", plot(found).render(is_unicode=True))
            (folder / f"{name}.svg").write_text(f"{drawn}\n", encoding="utf-8")
    (folder / "table.md").write_text(table(run), encoding="utf-8")


def table(run: dict[str, Any]) -> str:
    """What was measured, in Markdown, with the machine above it."""
    machine = run["machine"]
    revisions = "revisions" if "," in run["revision"] else "revision"
    where = (
        f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_gb']} GB, {machine['system']},"
        f" {machine['python']}, PostgreSQL {run['postgresql']['version']}; {revisions} {run['revision']},"
        f" {run['finished_at'][:10]}. Medians; what is missed is in bold."
    )
    lines = [
        "# Figures",
        "",
        f"[How to read them](../performance.md). {'A quick run. ' if run['quick'] else ''}{where}",
        "",
        "| group | what | measured | beside, in the same run | | ratio | to reach |",
        "|---|---|---|---|---|---|---|",
    ]
    for one in run["figures"]:
        limit, ratio = one["limit"], one["ratio"]
        cells = (
            one["group"],
            one["name"],
            f"{_shown(one['median'])} {one['unit']}",
            limit["name"] if limit else "",
            _shown(statistics.median(limit["rounds"])) if limit else "",
            "" if ratio is None else _shown(ratio),
            _told(one),
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _told(figure: dict[str, Any]) -> str:
    target = figure["to_reach"]
    if target is None:
        return ""
    return str(target) if figure["reached"] else f"**{target}, missed**"


def _shown(value: float) -> str:
    if value >= 100:  # noqa: PLR2004
        return f"{value:,.0f}"
    return f"{value:.3g}"


def _intake(found: _Figures) -> Graph:
    """Posts a second by connections, beside what the same server does without storing them."""
    steps = sorted({int(one["name"].split()[0]) for one in found})
    named = {one["name"]: one for one in found if not one["name"].endswith(("p50", "p99"))}
    chart = _bars("Posts a second, answered when they are durable", [f"{step} connections" for step in steps])
    for line in ("limits on, one source", "limits off", "parsing POST"):
        chart.add(line, [named[f"{step} connections, {line}"]["median"] for step in steps])
    chart.add(
        "no-op POST",
        [statistics.median(named[f"{step} connections, parsing POST"]["limit"]["rounds"]) for step in steps],
    )
    return chart


def _delivery(found: _Figures) -> Graph:
    rates = [one for one in found if one["unit"] == "webhooks/s" and one["to_reach"]]
    chart = _bars("Webhooks a second, one worker", [one["name"] for one in rates])
    chart.add("worker", [one["median"] for one in rates])
    chart.add("bare loop of the same client", [statistics.median(one["limit"]["rounds"]) for one in rates])
    return chart


def _scaling(found: _Figures) -> Graph:
    pages = [one for one in found if one["unit"] == "pages"]
    chart = _bars("Pages touched for each claimed row", [one["name"].split(", pages")[0] for one in pages])
    chart.add("near end", [statistics.median(one["limit"]["rounds"]) for one in pages])
    chart.add("far end", [one["median"] for one in pages])
    return chart


def _pinned(found: _Figures) -> Graph:
    rate = next(one for one in found if one["limit"]["name"] == "without it" and one["unit"] != "pages")
    chart = _lines(f"Deliveries a second, {rate['name']}", len(rate["rounds"]))
    chart.add("beside an old transaction", rate["rounds"])
    chart.add("without it", rate["limit"]["rounds"])
    return chart


def _memory(found: _Figures) -> Graph:
    slices = [one for one in found if len(one["rounds"]) > 1]
    chart = _lines("Resident MB, slice after slice of submissions", len(slices[0]["rounds"]))
    for one in slices:
        chart.add(one["name"].split(",")[0], one["rounds"])
    return chart


def _jobs(found: _Figures) -> Graph:
    """How many times as fast as each peer; waits are turned round, so that more is better everywhere."""
    names = list(dict.fromkeys(one["name"] for one in found))
    chart = _bars("Times as fast as the peer; 1 is as fast", names, logarithmic=True)
    for peer in dict.fromkeys(one["limit"]["name"] for one in found):
        of_peer = {one["name"]: one for one in found if one["limit"]["name"] == peer}
        chart.add(
            peer,
            [
                1 / of_peer[name]["ratio"] if of_peer[name]["unit"] == "ms" else of_peer[name]["ratio"]
                for name in names
            ],
        )
    return chart


_PLOTS: dict[str, Callable[[_Figures], Any]] = {
    "intake": _intake,
    "delivery": _delivery,
    "scaling": _scaling,
    "pinned": _pinned,
    "memory": _memory,
    "jobs": _jobs,
}


def _bars(title: str, labels: Iterable[str], *, logarithmic: bool = False) -> Graph:
    chart = pygal.HorizontalBar(_CONFIG, title=title, logarithmic=logarithmic)
    chart.x_labels = list(labels)
    return chart


def _lines(title: str, count: int) -> Graph:
    chart = pygal.Line(_CONFIG, title=title, print_values=False, include_x_axis=True, height=360)
    chart.x_labels = [str(number) for number in range(1, count + 1)]
    return chart


_CONFIG = pygal.Config(
    style=CleanStyle,
    # nothing is fetched by whoever looks at it
    js=(),
    no_prefix=True,
    legend_at_bottom=True,
    print_values=True,
    value_formatter=_shown,
    width=900,
    height=560,
    disable_xml_declaration=True,
)


if __name__ == "__main__":
    if len(sys.argv) < 3:  # noqa: PLR2004
        sys.exit(
            "usage: python -m bench.plots FILE... FOLDER, as in: bench.plots build/bench.json docs/performance"
        )
    *files, into = map(Path, sys.argv[1:])
    if missing := [str(file) for file in files if not file.is_file()]:
        sys.exit(f"there is no {' and no '.join(missing)}: `make bench` writes build/bench.json")
    main(files, into)
