-- The token is the fence. It stays on the row, so that a settlement that is written twice is told from one that is late.
WITH clock AS MATERIALIZED (
    SELECT coalesce(cast(:now AS timestamptz), clock_timestamp()) AS now
),
report AS MATERIALIZED (
    SELECT *
    FROM unnest(
        cast(:ids AS text[]), cast(:tokens AS uuid[]), cast(:states AS text[]), cast(:delays AS interval[]),
        cast(:spends AS boolean[]), cast(:failure_reasons AS text[]), cast(:errors AS text[]), cast(:results AS text[])
    ) AS report (id, token, state, delay, spends, failure_reason, error, result)
),
settled AS (
    UPDATE jobs
    SET
        state = report.state,
        run_at = coalesce(clock.now + report.delay, jobs.run_at),
        retry_count = jobs.retry_count + cast(report.spends AS integer),
        lost_in_a_row = 0,
        lease_until = NULL,
        result = cast(report.result AS json),
        failure_reason = report.failure_reason,
        error = report.error,
        finished_at = CASE WHEN report.state = 'pending' THEN NULL ELSE clock.now END
    FROM report, clock
    WHERE jobs.id = report.id AND jobs.state = 'processing' AND jobs.lease_token = report.token
    RETURNING jobs.id, report.token, jobs.event_count
),
nudged AS MATERIALIZED (
    SELECT pg_notify('hymical_job_events', id) FROM settled WHERE event_count > 0
)
SELECT
    cast(report.token AS text),
    CASE
        WHEN settled.id IS NOT NULL THEN 'settled'
        WHEN jobs.lease_token = report.token AND jobs.state <> 'processing' THEN 'repeated'
        ELSE 'lost'
    END AS verdict
FROM report
CROSS JOIN (SELECT count(*) FROM nudged) AS counted
LEFT JOIN settled ON settled.id = report.id AND settled.token = report.token
LEFT JOIN jobs ON jobs.id = report.id
