"""The chaos run with its counts: `python -m bench.chaos [--seed N] [--seconds 110]`; exit code 1 if it went wrong."""

import argparse
import secrets
import signal
import sys

from tests.chaos import run


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.chaos", description=__doc__)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1_000_000))
    parser.add_argument("--seconds", type=float, default=110.0)
    given = parser.parse_args()
    # so that whatever was started ends, whoever ends this
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    print(f"seed {given.seed}", flush=True)
    try:
        report = run(seed=given.seed, seconds=given.seconds)
    except KeyboardInterrupt:
        print("interrupted; what was started has ended")
        return 130
    print(report)
    return 1 if report.violations else 0


if __name__ == "__main__":
    sys.exit(main())
