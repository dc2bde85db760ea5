-- The instant comes even when there are no schedules: what is due is decided by the clock of the ledger.
SELECT
    clock.now, schedules.name, schedules.since, schedules.paused_at,
    last.due_at, last.job_id, last.enqueued_at
FROM (SELECT coalesce(cast(:now AS timestamptz), clock_timestamp()) AS now) AS clock
LEFT JOIN schedules ON TRUE
LEFT JOIN LATERAL (
    SELECT due_at, job_id, enqueued_at
    FROM ticks WHERE schedule = schedules.name ORDER BY due_at DESC LIMIT 1
) AS last ON TRUE
