"""`make bench-compare BASE=rev`: this tree and a revision measured in turn; ratios with their spread."""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_HERE = Path(__file__).parent.parent
_HIGHER_IS_BETTER = "/s"
# by chance alone all of five lie apart once in 126 times
_ENOUGH_ROUNDS = 5
_Key = tuple[str, str, str]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.compare", description=__doc__)
    parser.add_argument("base", help="the revision to compare with")
    parser.add_argument("--rounds", type=int, default=5, help="of both, in turn")
    parser.add_argument("--full", action="store_true", help="full groups instead of quick ones")
    parser.add_argument("--json", type=Path, default=Path("build", "bench-compare.json"))
    given = parser.parse_args()
    for sign in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(sign, signal.default_int_handler)
    found: dict[str, list[dict[_Key, float]]] = defaultdict(list)
    with _checked_out(given.base) as base:
        sources = {"base": base / "src", "ours": _HERE / "src"}
        for number in range(given.rounds):
            # whoever comes second meets another state of the machine: they take turns at that too
            for name in sorted(sources, reverse=bool(number % 2)):
                found[name].append(_measured(sources[name], full=given.full))
            print(f"round {number + 1} of {given.rounds}", file=sys.stderr, flush=True)
    rows = list(_rows(found["base"], found["ours"]))
    given.json.parent.mkdir(parents=True, exist_ok=True)
    given.json.write_text(json.dumps(rows, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(_shown(rows))
    return 0


@contextmanager
def _checked_out(revision: str) -> Iterator[Path]:
    """A worktree of it. This benchmark measures both: of the other one only `src` is used."""
    with tempfile.TemporaryDirectory(prefix="hymical-base-") as folder:
        tree = Path(folder, "base")
        _git("worktree", "add", "--detach", str(tree), revision)
        try:
            # what runs the processes measured may be another user
            Path(folder).chmod(0o755)
            yield tree
        finally:
            _git("worktree", "remove", "--force", str(tree))


def _git(*arguments: str) -> None:
    done = subprocess.run(["git", "-C", str(_HERE), *arguments], check=False, capture_output=True, text=True)  # noqa: S607
    if done.returncode:
        sys.exit(f"git {arguments[0]}: {done.stderr.strip()}")


def _measured(source: Path, *, full: bool) -> dict[_Key, float]:
    with tempfile.TemporaryDirectory() as folder:
        told = Path(folder, "found.json")
        subprocess.run(
            [sys.executable, "-m", "bench", *(() if full else ("--quick",)), "--rounds=1", f"--json={told}"],
            cwd=_HERE,
            env=os.environ | {"PYTHONPATH": f"{source}:{_HERE}"},
            stdout=subprocess.DEVNULL,
            check=True,
        )
        figures: list[dict[str, Any]] = json.loads(told.read_text(encoding="utf-8"))["figures"]
    return {
        (
            one["group"],
            # a line that stands beside several limits is measured anew for none of them
            f"{one['name']} [beside {one['limit']['name']}]" if one["limit"] else one["name"],
            one["unit"],
        ): one["median"]
        for one in figures
    }


def _rows(base: list[dict[_Key, float]], ours: list[dict[_Key, float]]) -> Iterator[dict[str, Any]]:
    for key in ours[0]:
        group, name, unit = key
        before, after = [one[key] for one in base], [one[key] for one in ours]
        if not all(before):
            continue
        ratios = [mine / theirs for mine, theirs in zip(after, before, strict=True)]
        yield {
            "group": group,
            "name": name,
            "unit": unit,
            "base": statistics.median(before),
            "ours": statistics.median(after),
            "ratio": statistics.median(ratios),
            "least": min(ratios),
            "most": max(ratios),
            "verdict": verdict(before, after, higher_is_better=unit.endswith(_HIGHER_IS_BETTER)),
        }


def verdict(before: list[float], after: list[float], *, higher_is_better: bool) -> str:
    """Better or worse only where no round of one reaches into those of the other, and there are enough of them."""
    if len(before) < _ENOUGH_ROUNDS or (min(after) <= max(before) and min(before) <= max(after)):
        return ""
    return "better" if (min(after) > max(before)) == higher_is_better else "worse"


def _shown(rows: list[dict[str, Any]]) -> str:
    names = [f"{row['group']}: {row['name']}" for row in rows]
    width = max(map(len, names))
    return "\n".join(
        f"{name:<{width}}  {row['base']:>10,.2f} → {row['ours']:>10,.2f} {row['unit']:<13} ratio {row['ratio']:.2f}"
        f" ({row['least']:.2f} to {row['most']:.2f}) {row['verdict']}".rstrip()
        for name, row in zip(names, rows, strict=True)
    )


if __name__ == "__main__":
    sys.exit(main())
