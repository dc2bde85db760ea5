"""Which schedule queues which type of job, and on which queue it waits: for people, out of what is registered."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from hymical.domain.schedules import Cron, Schedule
from hymical.entrypoints.jobs.queues import QUEUES
from hymical.entrypoints.jobs.registry import JobRegistry


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeRow:
    """A type of job; `schedules` are written as `name (rule, zone)`."""

    queue: str
    type: str
    schedules: tuple[str, ...]
    max_retries: int | None
    timeout_seconds: float | None


def type_rows(registry: JobRegistry, schedules: Sequence[Schedule]) -> Sequence[TypeRow]:
    """One for each type of job, by queue and name."""
    of_type = defaultdict[str, list[str]](list)
    for one in schedules:
        of_type[one.job_type].append(f"{one.name} ({_rule(one)}, {one.zone})")
    kinds = sorted(
        (definition.kind for definition in registry.definitions.values()),
        key=lambda kind: (kind.queue, kind.name),
    )
    return [
        TypeRow(
            queue=kind.queue,
            type=kind.name,
            schedules=tuple(of_type[kind.name]),
            max_retries=kind.max_retries,
            timeout_seconds=None if kind.timeout is None else kind.timeout.total_seconds(),
        )
        for kind in kinds
    ]


def as_markdown(rows: Sequence[TypeRow]) -> str:
    """A table with every queue that ships, also those that no type of job uses yet."""
    unused = [queue for queue in QUEUES if queue not in {row.queue for row in rows}]
    lines = ["| queue | type of job | schedules |", "|---|---|---|"]
    lines += [f"| `{row.queue}` | `{row.type}` | {', '.join(row.schedules) or 'none'} |" for row in rows]
    lines += [f"| `{queue}` | none yet | none |" for queue in unused]
    return "\n".join(lines)


def _rule(schedule: Schedule) -> str:
    match schedule.rule:
        case Cron(expression=expression):
            return f"`{expression}`"
        case times:
            return ", ".join(f"{time:%H:%M}" for time in times.times)
