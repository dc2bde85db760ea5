-- A few at a time: one file may be large. Which ones are over, their index knows.
WITH clock AS MATERIALIZED (
    SELECT coalesce(cast(:now AS timestamptz), clock_timestamp()) - cast(:age AS interval) AS before
),
old AS MATERIALIZED (
    SELECT exports.job_id
    FROM exports
    WHERE exports.withdrawn IS NULL AND exports.expires_at <= (SELECT before FROM clock)
    ORDER BY exports.expires_at
    LIMIT least(:looks, 10)
    FOR UPDATE SKIP LOCKED
),
expired AS (
    UPDATE exports SET withdrawn = 'expired' FROM old WHERE exports.job_id = old.job_id
),
removed AS (
    DELETE FROM export_chunks USING old WHERE export_chunks.job_id = old.job_id
)
SELECT count(*) AS removed, max(old.job_id) AS last, count(*) = least(:looks, 10) AS goes_on FROM old
