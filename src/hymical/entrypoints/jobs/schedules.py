"""What is done at clock times: every schedule of this build, in one list."""

from collections.abc import Sequence
from datetime import time
from importlib import import_module

from hymical.domain.errors import InvalidValue
from hymical.domain.jobs import Json
from hymical.domain.schedules import CatchUp, Cron, FixedTimes, Rule, Schedule


def schedule(
    name: str,
    *,
    job: str,
    cron: str | None = None,
    at: Sequence[str] = (),
    zone: str = "UTC",
    catch_up: CatchUp = CatchUp.ONCE,
    bound: int = 10,
    payload: Json | None = None,
) -> Schedule:
    """A schedule that enqueues jobs of the type `job`, by a `cron` expression or `at` times of day such as `07:00`.

    `catch_up` says what becomes of ticks that nobody ran, `ALL` for the newest `bound` of them. Whether the
    expression, the zone and the type are known is found out when a process starts.

    Raises:
        InvalidValue: there are both or neither of `cron` and `at`, or a time cannot be read.
    """
    try:
        rule = _rule(cron, at)
        return Schedule(
            name=name,
            job_type=job,
            rule=rule,
            zone=zone,
            catch_up=catch_up,
            bound=bound,
            payload=payload or {},
        )
    except InvalidValue as error:
        raise InvalidValue(f"schedule {name!r}:", f"{error.field} {error.rule}") from None


def declared(modules: Sequence[str] = ()) -> Sequence[Schedule]:
    """Those of this build, and those in the list `SCHEDULES` of each module that is named."""
    return [
        *SCHEDULES,
        *(one for module in modules for one in getattr(import_module(module), "SCHEDULES", ())),
    ]


def _rule(cron: str | None, at: Sequence[str]) -> Rule:
    if (cron is None) == (not at):
        raise InvalidValue("rule", "must be either cron or at")
    if cron is not None:
        return Cron(expression=cron)
    try:
        return FixedTimes(times=tuple(time.fromisoformat(one) for one in at))
    except ValueError:
        raise InvalidValue("at", f"must be times of day such as 07:00, not {', '.join(at)}") from None


SCHEDULES: Sequence[Schedule] = (
    schedule("clean-up", job="clean_up", cron="30 3 * * *"),
    schedule("key-expiry", job="warn_of_expiring_keys", at=["07:00"]),
)
