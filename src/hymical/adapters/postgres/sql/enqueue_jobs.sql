-- New jobs of one type, stored in their order. What a unique key keeps out is left out, not refused: of the jobs that have one, those that were stored
-- are told. The wake-up commits with them. What they have apart are lists of JSON, which PostgreSQL and the driver are through
-- with sooner than with arrays and with records. Payloads are text in it, for they may hold what json refuses.
WITH stored AS (
    INSERT INTO jobs (
        id, queue, type, version, payload, priority, state, run_at,
        claim_count, retry_count, max_retries, lost_in_a_row, unique_key, event_count, created_at
    )
    SELECT
        job.id, :queue, :type, cast(:version AS smallint), cast(job.payload AS json), cast(job.priority AS smallint), 'pending',
        coalesce(cast(job.run_at AS timestamptz), cast(:now AS timestamptz), statement_timestamp()),
        0, 0, cast(:max_retries AS integer), 0, job.unique_key, 0, coalesce(:now, statement_timestamp())
    FROM ROWS FROM (
        json_array_elements_text(:ids),
        json_array_elements_text(:payloads),
        json_array_elements_text(:priorities),
        json_array_elements_text(:run_ats),
        json_array_elements_text(:unique_keys)
    ) AS job (id, payload, priority, run_at, unique_key)
    ON CONFLICT (type, unique_key) WHERE unique_key IS NOT NULL AND state IN ('pending', 'processing', 'paused')
    DO NOTHING
    RETURNING id, run_at, unique_key
)
SELECT id FROM stored WHERE unique_key IS NOT NULL
UNION ALL
(
    SELECT cast(pg_notify('hymical_jobs', :queue) AS text) FROM stored
    WHERE run_at <= coalesce(:now, statement_timestamp())
    LIMIT 1
)
