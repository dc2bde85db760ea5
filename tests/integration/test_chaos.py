"""The chaos run, a short one; `make chaos` has the long one."""

import sys

from tests.chaos import Fault, run


def test_nothing_is_lost_and_nothing_is_told_wrong_while_everything_fails() -> None:
    report = run(seed=3, seconds=8)
    sys.stdout.write(f"\n{report}\n")
    assert not report.violations
    assert report.accepted > 0
    assert all(report.faults[fault] > 0 for fault in Fault)
