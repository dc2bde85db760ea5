-- The row's lock makes schedulers take turns, and each reads the watermark that the one before has left; the ledger's
-- key holds where a clock that went back has taken the watermark with it.
WITH clock AS MATERIALIZED (
    SELECT coalesce(cast(:now AS timestamptz), clock_timestamp()) AS now
),
schedule AS MATERIALIZED (
    SELECT name, since FROM schedules WHERE name = :name AND paused_at IS NULL FOR UPDATE
),
recorded AS (
    INSERT INTO ticks (schedule, due_at, job_id, enqueued_at)
    SELECT schedule.name, given.due_at, given.job_id, clock.now
    FROM schedule, clock, unnest(cast(:due_ats AS timestamptz[]), cast(:job_ids AS text[])) AS given (due_at, job_id)
    WHERE given.due_at > schedule.since
    ON CONFLICT (schedule, due_at) DO NOTHING
    RETURNING job_id
),
moved AS (
    UPDATE schedules SET since = cast(:through AS timestamptz)
    FROM schedule
    WHERE schedules.name = schedule.name AND schedule.since < cast(:through AS timestamptz)
),
trimmed AS (
    DELETE FROM ticks USING schedule
    WHERE ticks.schedule = schedule.name AND ticks.due_at <= schedule.since
    AND ticks.due_at < (
        SELECT due_at FROM ticks AS kept WHERE kept.schedule = :name ORDER BY due_at DESC OFFSET :kept - 1 LIMIT 1
    )
)
SELECT job_id FROM recorded
