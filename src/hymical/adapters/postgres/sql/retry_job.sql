-- Afresh, but with what it saved and was told: the work that was done is not done again.
WITH retried AS (
    UPDATE jobs
    SET
        state = 'pending',
        run_at = coalesce(cast(:now AS timestamptz), clock_timestamp()),
        retry_count = 0,
        lost_in_a_row = 0,
        failure_reason = NULL,
        finished_at = NULL
    WHERE jobs.id = :id AND jobs.state = 'failed'
    RETURNING jobs.id, jobs.queue, jobs.event_count
)
SELECT
    pg_notify('hymical_jobs', retried.queue) AS woken,
    CASE WHEN retried.event_count > 0 THEN pg_notify('hymical_job_events', retried.id) END AS nudged
FROM retried
