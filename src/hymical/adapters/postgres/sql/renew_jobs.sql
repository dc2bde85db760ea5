-- The heartbeat of all that a worker holds. In order of the ids, so that no two batches wait for each other.
WITH held AS MATERIALIZED (
    SELECT jobs.id
    FROM unnest(cast(:ids AS text[]), cast(:tokens AS uuid[])) AS held (id, token)
    JOIN jobs ON jobs.id = held.id AND jobs.state = 'processing' AND jobs.lease_token = held.token
    ORDER BY jobs.id
    FOR UPDATE OF jobs
)
UPDATE jobs
SET lease_until = coalesce(cast(:now AS timestamptz), clock_timestamp()) + cast(:lease AS interval)
FROM held
WHERE jobs.id = held.id
RETURNING jobs.id
