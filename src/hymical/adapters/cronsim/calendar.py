"""The times that a cron expression names."""

from datetime import datetime

from cronsim import CronSim, CronSimError

from hymical.domain.errors import InvalidValue
from hymical.domain.schedules import WallTimes

_FIELDS = 5
_ANY_TIME = datetime.fromisoformat("2026-01-01")


class CronSimCalendar:
    """The port `CronCalendar`, with the syntax of Debian's cron.

    The library never sees a zone: where the clocks change is the domain's own rule, the same for all zones.
    """

    def walls(self, expression: str) -> WallTimes:
        if len(expression.split()) != _FIELDS:
            raise InvalidValue("cron", f"{expression!r} must have five fields: minute hour day month weekday")

        def after(wall: datetime) -> datetime | None:
            return next(CronSim(expression, wall), None)

        try:
            first = after(_ANY_TIME)
        except CronSimError as error:
            flaw = str(error)
            raise InvalidValue(
                "cron", f"{expression!r} cannot be read: {flaw[0].lower()}{flaw[1:]}"
            ) from None
        if first is None:
            raise InvalidValue("cron", f"{expression!r} names no time in the next 50 years")
        return after
