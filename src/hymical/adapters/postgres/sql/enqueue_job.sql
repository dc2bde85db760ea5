-- One new job; a row where it was stored, none where its unique key kept it out. Alone it is a row of values: the lists of
-- enqueue_jobs.sql, and the two steps after them, cost it more than the insert does. The wake-up commits with it.
INSERT INTO jobs (
    id, queue, type, version, payload, priority, state, run_at,
    claim_count, retry_count, max_retries, lost_in_a_row, unique_key, event_count, created_at
)
VALUES (
    :id, :queue, :type, :version, :payload, :priority, 'pending',
    coalesce(:run_at, cast(:now AS timestamptz), statement_timestamp()),
    0, 0, :max_retries, 0, :unique_key, 0, coalesce(cast(:now AS timestamptz), statement_timestamp())
)
ON CONFLICT (type, unique_key) WHERE unique_key IS NOT NULL AND state IN ('pending', 'processing', 'paused')
DO NOTHING
RETURNING
    CASE
        WHEN run_at <= coalesce(cast(:now AS timestamptz), statement_timestamp())
            THEN cast(pg_notify('hymical_jobs', :queue) AS text)
    END AS woken
