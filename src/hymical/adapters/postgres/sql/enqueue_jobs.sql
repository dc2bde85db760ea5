-- What a unique key keeps out is left out, not refused: of the jobs that have one, those that were stored are told. The wake-up
-- commits with the jobs, one for each queue. The batch is one parameter: nine arrays took the driver longer to write than all
-- else. Payloads are text in it, for they may hold what json refuses.
WITH clock AS MATERIALIZED (
    SELECT coalesce(cast(:now AS timestamptz), clock_timestamp()) AS now
),
stored AS (
    INSERT INTO jobs (
        id, queue, type, version, payload, priority, state, run_at,
        claim_count, retry_count, max_retries, lost_in_a_row, unique_key, event_count, created_at
    )
    SELECT
        batch.id, batch.queue, batch.type, batch.version, cast(batch.payload AS json), batch.priority, 'pending',
        coalesce(batch.run_at, clock.now), 0, 0, batch.max_retries, 0, batch.unique_key, 0, clock.now
    FROM clock, json_to_recordset(cast(:batch AS json)) AS batch (
        id text, queue text, type text, version smallint, payload text, priority smallint, max_retries integer,
        run_at timestamptz, unique_key text
    )
    -- two batches that share keys take them in one order: neither waits for what waits for it
    ORDER BY batch.unique_key, batch.type
    ON CONFLICT (type, unique_key) WHERE unique_key IS NOT NULL AND state IN ('pending', 'processing', 'paused')
    DO NOTHING
    RETURNING id, queue, run_at, unique_key
),
woken AS MATERIALIZED (
    SELECT pg_notify('hymical_jobs', due.queue)
    FROM (SELECT DISTINCT stored.queue FROM stored, clock WHERE stored.run_at <= clock.now) AS due
)
SELECT stored.id FROM stored, (SELECT count(*) FROM woken) AS counted WHERE stored.unique_key IS NOT NULL
