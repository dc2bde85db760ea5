"""The process that runs schedules."""
