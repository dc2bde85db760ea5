-- As with deliveries; events and files go with their job.
WITH clock AS MATERIALIZED (
    SELECT coalesce(cast(:now AS timestamptz), clock_timestamp()) - cast(:age AS interval) AS before
),
looked_at AS MATERIALIZED (
    SELECT id, created_at, finished_at FROM jobs WHERE id > :behind ORDER BY id LIMIT :looks
),
old AS MATERIALIZED (
    SELECT jobs.id
    FROM looked_at
    JOIN clock ON looked_at.finished_at < clock.before
    JOIN jobs ON jobs.id = looked_at.id
    WHERE jobs.finished_at < clock.before
    ORDER BY jobs.id
    FOR UPDATE OF jobs SKIP LOCKED
),
removed AS (
    DELETE FROM jobs USING old WHERE jobs.id = old.id
)
SELECT
    (SELECT count(*) FROM old) AS removed,
    (SELECT looked_at.id FROM looked_at, clock WHERE looked_at.created_at < clock.before ORDER BY id DESC LIMIT 1) AS last,
    (SELECT count(*) FROM looked_at, clock WHERE looked_at.created_at < clock.before) = :looks AS goes_on
