-- What a unique key keeps out is left out, not refused; the wake-up commits with the jobs, one for each queue.
WITH clock AS MATERIALIZED (
    SELECT coalesce(cast(:now AS timestamptz), clock_timestamp()) AS now
),
stored AS (
    INSERT INTO jobs (
        id, queue, type, version, payload, priority, state, run_at,
        claim_count, retry_count, max_retries, lost_in_a_row, unique_key, event_count, created_at
    )
    SELECT
        id, queue, type, version, cast(payload AS json), priority, 'pending', coalesce(run_at, clock.now),
        0, 0, max_retries, 0, unique_key, 0, clock.now
    FROM clock, unnest(
        cast(:ids AS text[]), cast(:queues AS text[]), cast(:types AS text[]), cast(:versions AS smallint[]),
        cast(:payloads AS text[]), cast(:priorities AS smallint[]), cast(:max_retries AS integer[]),
        cast(:run_ats AS timestamptz[]), cast(:unique_keys AS text[])
    ) AS batch (id, queue, type, version, payload, priority, max_retries, run_at, unique_key)
    ON CONFLICT (type, unique_key) WHERE unique_key IS NOT NULL AND state IN ('pending', 'processing', 'paused')
    DO NOTHING
    RETURNING id, queue, run_at
),
woken AS MATERIALIZED (
    SELECT pg_notify('hymical_jobs', due.queue)
    FROM (SELECT DISTINCT stored.queue FROM stored, clock WHERE stored.run_at <= clock.now) AS due
)
SELECT stored.id FROM stored, (SELECT count(*) FROM woken) AS counted
