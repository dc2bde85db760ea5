"""`make bench`: each group after the other, or those that ONLY names; a table, and JSON in build/bench.json."""

import argparse
import os
import signal
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

from bench import figures
from bench.figures import Effort, Figure

GROUPS = (
    "intake",
    "delivery",
    "end_to_end",
    "isolation",
    "start",
    "scaling",
    "pinned",
    "sustained",
    "memory",
    "cpu",
    "jobs",
    "events",
)
"""Each is the module of that name, with a function `measure(server, effort)`."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="at most three minutes, one round of each")
    parser.add_argument("--rounds", type=int, help="of each measurement; the median counts")
    parser.add_argument("--json", type=Path, default=Path("build", "bench.json"))
    given = parser.parse_args()
    chosen = os.environ.get("ONLY", "").replace(",", " ").split() or list(GROUPS)
    if unknown := [name for name in chosen if name not in GROUPS]:
        parser.error(f"there is no group {', '.join(unknown)}; there are {', '.join(GROUPS)}")
    # so that whatever was started ends, whoever ends this
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    effort = Effort.of(quick=given.quick, rounds=given.rounds)
    # not above: each process that is spawned from here would load it all again
    from bench import server  # noqa: PLC0415

    started, found, said = time.monotonic(), list[Figure](), dict[str, Any]()
    with server.running() as running:
        for name in chosen:
            began = time.monotonic()
            print(f"{name} …", file=sys.stderr, flush=True)
            found += import_module(f"bench.{name}").measure(running, effort)
            print(f"{name}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
            # after each group: what was measured outlives one that fails
            said = figures.report(found, quick=given.quick, seconds=time.monotonic() - started)
            said |= {"revision": _revision(), "postgresql": server.described()}
            figures.write_json(said, given.json)
    machine = said["machine"]
    print(
        f"{machine['cpu']}, {machine['cores']} cores, {machine['system']}, {machine['python']}, PostgreSQL"
        f" {said['postgresql']['version']}; load average at the end {said['load_average'][0]}"
    )
    print(figures.table(found))
    return 0


def _revision() -> str | None:
    """None outside a checkout."""
    try:
        said = subprocess.run(
            ["git", "describe", "--always", "--dirty"],  # noqa: S607  whichever git there is
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return said.stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
