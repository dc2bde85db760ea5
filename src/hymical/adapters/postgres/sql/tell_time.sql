-- The time by which everything is due.
SELECT coalesce(cast(:now AS timestamptz), clock_timestamp()) AS now
