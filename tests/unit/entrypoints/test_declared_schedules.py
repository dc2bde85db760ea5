"""Schedules are declared in one line each, and found in the modules that are named."""

from datetime import time

import pytest

from hymical.domain.errors import InvalidValue
from hymical.domain.schedules import CatchUp, Cron, FixedTimes, Schedule
from hymical.entrypoints.jobs.schedules import SCHEDULES, declared, schedule


def test_a_cron_expression_in_utc_that_is_caught_up_with_once_is_the_least_to_say() -> None:
    assert schedule("nightly", job="report", cron="0 3 * * *") == Schedule(
        name="nightly",
        job_type="report",
        rule=Cron(expression="0 3 * * *"),
        zone="UTC",
        catch_up=CatchUp.ONCE,
    )


def test_everything_can_be_said() -> None:
    said = schedule(
        "twice",
        job="report",
        at=["07:00", "19:30:15"],
        zone="Europe/Berlin",
        catch_up=CatchUp.ALL,
        bound=2,
        payload={"subject": "the day"},
    )

    assert said.rule == FixedTimes(times=(time(7), time(19, 30, 15)))
    assert (said.zone, said.catch_up, said.bound) == ("Europe/Berlin", CatchUp.ALL, 2)
    assert said.payload == {"subject": "the day"}


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ({}, "rule must be either cron or at"),
        ({"cron": "0 3 * * *", "at": ["07:00"]}, "rule must be either cron or at"),
        ({"at": ["7 o'clock"]}, "at must be times of day such as 07:00, not 7 o'clock"),
        ({"at": ["07:00+02:00"]}, "times must be one time of day or more, without a zone"),
        ({"cron": "0 3 * * *", "bound": 0}, "bound must be 1 to 100"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_the_name_of_the_schedule(
    rule: dict[str, object], words: str
) -> None:
    with pytest.raises(InvalidValue) as refused:
        schedule("nightly", job="report", **rule)  # type: ignore[arg-type]

    assert (refused.value.field, refused.value.rule) == ("schedule 'nightly':", words)


def test_those_of_a_named_module_are_found_beside_those_of_the_build() -> None:
    found = [one.name for one in declared(["tests.scheduled_jobs", "tests.clocks"])]

    assert found == [*(one.name for one in SCHEDULES), "nightly", "doomed"]
