-- One statement for new ones and for those that a clock that went back left ahead; in order, or two schedulers deadlock.
INSERT INTO schedules (name, since)
SELECT name, coalesce(cast(:now AS timestamptz), clock_timestamp())
FROM unnest(cast(:names AS text[])) AS given (name)
ORDER BY name
ON CONFLICT (name) DO UPDATE SET since = excluded.since WHERE schedules.since > excluded.since
