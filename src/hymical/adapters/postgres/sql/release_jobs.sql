-- Fenced like every end of a lease; others are woken, for what is handed back is due at once.
WITH held AS MATERIALIZED (
    SELECT jobs.id
    FROM unnest(cast(:ids AS text[]), cast(:tokens AS uuid[])) AS held (id, token)
    JOIN jobs ON jobs.id = held.id AND jobs.state = 'processing' AND jobs.lease_token = held.token
    ORDER BY jobs.id
    FOR UPDATE OF jobs
),
released AS (
    UPDATE jobs SET state = 'pending', lease_until = NULL, lease_token = NULL
    FROM held
    WHERE jobs.id = held.id
    RETURNING jobs.queue
)
SELECT pg_notify('hymical_jobs', due.queue) FROM (SELECT DISTINCT queue FROM released) AS due
