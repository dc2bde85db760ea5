-- Under the lock of lock_job. An answer that comes before its question leaves the job as it is, and is marked as early:
-- no run is given it before a question was asked that it fits.
WITH answered AS (
    UPDATE jobs
    SET
        state = CASE WHEN jobs.state = 'paused' THEN 'pending' ELSE jobs.state END,
        run_at = CASE WHEN jobs.state = 'paused' THEN clock.now ELSE jobs.run_at END,
        question = NULL,
        answer_by = NULL,
        answers = coalesce(jobs.answers, '{}') || jsonb_build_object(
            cast(:key AS text),
            jsonb_build_object(
                'text', cast(:text AS text), 'by', cast(:by AS text), 'at', clock.now, 'early', jobs.state <> 'paused'
            )
        )
    FROM (SELECT coalesce(cast(:now AS timestamptz), clock_timestamp()) AS now) AS clock
    WHERE jobs.id = :id
    RETURNING jobs.id, jobs.queue, jobs.state, jobs.event_count
)
SELECT
    CASE WHEN answered.state = 'pending' THEN pg_notify('hymical_jobs', answered.queue) END AS woken,
    CASE WHEN answered.event_count > 0 THEN pg_notify('hymical_job_events', answered.id) END AS nudged
FROM answered
