-- Numbered under the job's row and its lease: without gaps, in one order for all, and never by a holder that was overtaken.
WITH told AS (
    SELECT told.*
    FROM unnest(cast(:steps AS text[]), cast(:statuses AS text[]), cast(:messages AS text[]))
        WITH ORDINALITY AS told (step, status, message, place)
),
held AS (
    UPDATE jobs
    SET event_count = event_count + cast(:count AS integer)
    WHERE id = :job_id AND state = 'processing' AND lease_token = cast(:token AS uuid)
    RETURNING id, event_count - cast(:count AS integer) AS before
),
recorded AS (
    INSERT INTO job_events (job_id, number, at, step, status, message)
    SELECT
        held.id, held.before + told.place, coalesce(cast(:now AS timestamptz), clock_timestamp()),
        told.step, told.status, cast(told.message AS json)
    FROM held, told
)
SELECT pg_notify('hymical_job_events', held.id) FROM held
