"""CPU time for each submission and each delivery, ours and PostgreSQL's apart: steadier than rates."""

from bench import backlog
from bench.figures import Effort, Figure
from bench.intake import LIMITED, port_of
from bench.load import Load, post
from bench.receivers import receivers
from bench.server import Server, cpu_seconds
from tests.site import Site

_LONGEST = 120.0
_WARM_UP = 500
_Costs = dict[str, float]


def measure(server: Server, effort: Effort) -> list[Figure]:
    count = effort.choose(20_000, 1_500)
    rounds = [_of_submissions(server, count) | _of_deliveries(server, count) for _ in range(effort.rounds)]
    return [
        Figure(group="cpu", name=name, unit="µs", rounds=tuple(one[name] for one in rounds))
        for name in rounds[0]
    ]


def _of_submissions(server: Server, count: int) -> _Costs:
    with server.database() as database, Site(database.url, **LIMITED) as site:
        backlog.add_form(database)
        backlog.add_destinations(database, ["http://127.0.0.1:9/"])
        api = site.start_api()

        def load(count: int) -> int:
            return len(
                post(
                    Load(
                        port=port_of(api),
                        path=f"/f/{backlog.FORM}",
                        connections=32,
                        seconds=_LONGEST,
                        at_most=count,
                    )
                ).latencies
            )

        load(_WARM_UP)
        ours, theirs = cpu_seconds(api.pid), server.cpu_seconds()
        posted = load(count)
        return {
            "a submission, API": (cpu_seconds(api.pid) - ours) / posted * 1e6,
            "a submission, PostgreSQL": (server.cpu_seconds() - theirs) / posted * 1e6,
        }


def _of_deliveries(server: Server, count: int) -> _Costs:
    with receivers(1) as listening, server.database() as database, Site(database.url) as site:
        backlog.add_form(database)
        backlog.add_destinations(database, listening.urls, max_in_flight=100)
        worker = site.start_worker(worker_batch_size="64", worker_poll_seconds="0.1")
        backlog.add_due(database, _WARM_UP)
        listening.have(_WARM_UP, within=_LONGEST)
        listening.count_anew()
        backlog.add_due(database, count, behind=_WARM_UP)
        ours, theirs = cpu_seconds(worker.pid), server.cpu_seconds()
        listening.have(count, within=_LONGEST)
        return {
            "a delivery, worker": (cpu_seconds(worker.pid) - ours) / count * 1e6,
            "a delivery, PostgreSQL": (server.cpu_seconds() - theirs) / count * 1e6,
        }
