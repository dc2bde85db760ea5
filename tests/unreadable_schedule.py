"""A schedule for tests that no process can run."""

from hymical.entrypoints.jobs.schedules import schedule
from tests.scheduled_jobs import report

__all__ = ["SCHEDULES", "report"]

SCHEDULES = (schedule("broken", job="report", cron="0 25 * * *"),)
