"""Intake and delivery together at 70 % of what they can do together: the backlog must not grow."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from bench import backlog
from bench.figures import Effort, Figure, Limit, Target, percentile
from bench.intake import LIMITED, port_of
from bench.load import Answered, Load, post
from bench.receivers import Receivers, receivers
from bench.server import Database, Server
from tests.site import Site

_SHARE = 0.7
_RECEIVERS = 20
_CONNECTIONS = 32
_WORKER = {"worker_batch_size": "64"}
_LONGEST_DRAIN = 120.0
_NO_GROWTH = Target(at_most=1)
_BACKLOG = "SELECT count(*) FROM deliveries WHERE due_at IS NOT NULL"


def measure(server: Server, effort: Effort) -> list[Figure]:
    seconds, probe = effort.choose((60.0, 15.0), (6.0, 3.0))
    with (
        receivers(_RECEIVERS) as listening,
        server.database() as database,
        Site(database.url, **LIMITED) as site,
    ):
        backlog.add_form(database)
        backlog.add_destinations(database, listening.urls[:1], max_in_flight=100)
        port = port_of(site.start_api())
        site.start_worker(**_WORKER)
        capacity = _capacity(listening, port, probe)
        listening.count_anew()
        with _sampled(database) as waiting:
            posted = post(
                Load(
                    port=port,
                    path=f"/f/{backlog.FORM}",
                    connections=4 * _CONNECTIONS,
                    seconds=seconds,
                    per_second=capacity * _SHARE,
                )
            )
        arrived = _arrivals(listening, posted)
    return list(_figures(capacity, posted, arrived, waiting))


def _capacity(listening: Receivers, port: int, seconds: float) -> float:
    """Webhooks a second while as much is posted as is taken; waits until all have arrived."""
    posted = post(Load(port=port, path=f"/f/{backlog.FORM}", connections=_CONNECTIONS, seconds=seconds))
    delivered = listening.counted().requests / posted.seconds
    listening.have(len(posted.latencies), within=_LONGEST_DRAIN)
    return min(delivered, posted.per_second)


def _arrivals(listening: Receivers, posted: Answered) -> list[float]:
    """Seconds from each post's beginning to its webhook."""
    listening.have(len(posted.latencies), within=_LONGEST_DRAIN)
    arrived = listening.arrivals()
    return [arrived[number] - began for number, began in posted.begun.items()]


@contextmanager
def _sampled(database: Database) -> Iterator[list[int]]:
    """How many deliveries are open, looked at each second while the block is open."""
    found, over = list[int](), threading.Event()

    def look() -> None:
        while not over.wait(1):
            found.append(int(database.query(_BACKLOG)[0][0]))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield found
    finally:
        over.set()
        thread.join()


def _figures(
    capacity: float, posted: Answered, arrived: Sequence[float], waiting: Sequence[int]
) -> Iterator[Figure]:
    third = max(1, len(waiting) // 3)
    yield Figure(
        group="sustained",
        name=f"both at {_SHARE:.0%} of capacity",
        unit="posts/s",
        rounds=(posted.per_second,),
        limit=Limit("both as fast as they can", (capacity,)),
    )
    # the last third of the looks less the first; the few that are under way come and go
    yield Figure(
        group="sustained",
        name="growth of what is open, in seconds of the load",
        unit="s",
        rounds=(
            (sum(waiting[-third:]) - sum(waiting[:third])) / third / posted.per_second if waiting else 0.0,
        ),
        target=_NO_GROWTH,
    )
    for name, seconds in (("post to 202", posted.latencies), ("post to webhook", arrived)):
        for percent in (50, 99):
            yield Figure(
                group="sustained",
                name=f"{name}, p{percent}",
                unit="ms",
                rounds=(percentile(seconds, percent) * 1_000,),
            )
