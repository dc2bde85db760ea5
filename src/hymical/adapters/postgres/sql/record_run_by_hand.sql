-- A schedule that no scheduler has seen yet begins here.
WITH clock AS MATERIALIZED (
    SELECT coalesce(cast(:now AS timestamptz), clock_timestamp()) AS now
),
schedule AS (
    INSERT INTO schedules (name, since) SELECT :name, clock.now FROM clock ON CONFLICT (name) DO NOTHING
)
INSERT INTO ticks (schedule, due_at, job_id, enqueued_at)
SELECT :name, clock.now, :job_id, clock.now FROM clock
ON CONFLICT (schedule, due_at) DO NOTHING
