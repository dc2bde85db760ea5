"""Cron expressions, read by the library that Healthchecks maintains for its own."""
