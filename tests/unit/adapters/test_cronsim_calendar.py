"""Cron expressions are read, or refused in words."""

from datetime import datetime

import pytest

from hymical.adapters.cronsim.calendar import CronSimCalendar
from hymical.domain.errors import InvalidValue

START = datetime.fromisoformat("2026-11-29T12:00")


@pytest.mark.parametrize(
    ("expression", "first"),
    [
        ("* * * * *", "2026-11-29T12:01"),
        ("0 7 * * *", "2026-11-30T07:00"),
        ("*/20 12 * * *", "2026-11-29T12:20"),
        ("0 0 29 feb *", "2028-02-29T00:00"),
        ("0 9 * * mon#1", "2026-12-07T09:00"),
        ("  0   0  1 1 * ", "2027-01-01T00:00"),
    ],
)
def test_the_first_time_behind_another_is_what_the_expression_names(expression: str, first: str) -> None:
    assert CronSimCalendar().walls(expression)(START) == datetime.fromisoformat(first)


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("", "must have five fields"),
        ("0 7 * *", "must have five fields"),
        ("0 0 7 * * *", "must have five fields"),
        ("@daily", "must have five fields"),
        ("61 * * * *", "cannot be read: bad minute"),
        ("0 25 * * *", "cannot be read: bad hour"),
        ("0 0 * * FUNDAY", "cannot be read: bad day-of-week"),
        ("0 0 30 2 *", "cannot be read: bad day-of-month"),
    ],
)
def test_an_expression_that_cannot_work_is_refused_in_words(expression: str, words: str) -> None:
    with pytest.raises(InvalidValue) as refused:
        CronSimCalendar().walls(expression)

    assert words in refused.value.rule
