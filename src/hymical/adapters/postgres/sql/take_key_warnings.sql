-- Taken and noted in one step: of two that look together the second waits for the row, and then finds it noted.
WITH clock AS MATERIALIZED (
    SELECT coalesce(cast(:now AS timestamptz), clock_timestamp()) AS now
),
passed AS (
    SELECT keys.id, min(warning.days) AS days
    FROM keys, clock, unnest(cast(:days AS smallint[])) AS warning (days)
    WHERE keys.revoked_at IS NULL
    AND keys.expires_at - make_interval(hours => 24 * warning.days) <= clock.now
    AND keys.expires_at - make_interval(hours => 24 * warning.days) > keys.created_at
    GROUP BY keys.id
),
taken AS (
    UPDATE keys
    SET warned_days = passed.days
    FROM passed
    WHERE keys.id = passed.id AND (keys.warned_days IS NULL OR keys.warned_days > passed.days)
    RETURNING keys.id, keys.name, keys.created_at, keys.expires_at, keys.revoked_at
)
SELECT clock.now, taken.id, taken.name, taken.created_at, taken.expires_at, taken.revoked_at
FROM clock LEFT JOIN taken ON TRUE
ORDER BY taken.id
