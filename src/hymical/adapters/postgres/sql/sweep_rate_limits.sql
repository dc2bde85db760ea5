-- A bucket that is full again needs no row; one that is being spent from is left alone.
WITH clock AS MATERIALIZED (
    SELECT coalesce(cast(:now AS timestamptz), clock_timestamp()) - cast(:age AS interval) AS before
),
looked_at AS MATERIALIZED (
    SELECT key FROM rate_limits WHERE key > decode(:behind, 'hex') ORDER BY key LIMIT :looks
),
old AS MATERIALIZED (
    SELECT rate_limits.key
    FROM looked_at
    JOIN rate_limits ON rate_limits.key = looked_at.key
    WHERE rate_limits.tat <= (SELECT before FROM clock)
    ORDER BY rate_limits.key
    FOR UPDATE OF rate_limits SKIP LOCKED
),
removed AS (
    DELETE FROM rate_limits USING old WHERE rate_limits.key = old.key
)
SELECT
    (SELECT count(*) FROM old) AS removed,
    (SELECT encode(key, 'hex') FROM looked_at ORDER BY key DESC LIMIT 1) AS last,
    (SELECT count(*) FROM looked_at) = :looks AS goes_on
