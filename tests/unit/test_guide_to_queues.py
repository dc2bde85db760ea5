"""The matrix in the guide to queues and schedules is what is registered."""

from pathlib import Path

from hymical.entrypoints.jobs.matrix import as_markdown, type_rows
from hymical.entrypoints.jobs.registry import discover
from hymical.entrypoints.jobs.schedules import declared

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "queues-and-schedules.md"
BEGIN, END = "<!-- types of jobs, held to the registry by a test -->\n", "\n<!-- end -->"


def test_the_matrix_of_schedules_types_and_queues_is_current() -> None:
    written = GUIDE.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0]

    assert written == as_markdown(type_rows(discover(), declared()))
