"""A webhook goes out at the wake-up, not at the next poll."""

import statistics
import sys

from bench.end_to_end import latencies


def test_on_an_idle_system_a_webhook_arrives_in_milliseconds_although_workers_poll_once_an_hour(
    database_url: str,
) -> None:
    found = latencies(database_url, 200)
    sys.stdout.write(f"\n{found.report()}\n")
    # a busy machine is no reason to fail; an hour, or even a second, would be
    assert statistics.median(found.arrived_after_post) < 1
    assert max(found.arrived_after_post) < 20
