-- The token goes, so that whoever holds the job is not taken for one that reports twice.
WITH cancelled AS (
    UPDATE jobs
    SET
        state = 'cancelled',
        lease_token = NULL,
        lease_until = NULL,
        question = NULL,
        answer_by = NULL,
        finished_at = coalesce(cast(:now AS timestamptz), clock_timestamp())
    WHERE jobs.id = :id AND jobs.state IN ('pending', 'processing', 'paused')
    RETURNING jobs.id, jobs.event_count
)
SELECT CASE WHEN cancelled.event_count > 0 THEN pg_notify('hymical_job_events', cancelled.id) END FROM cancelled
