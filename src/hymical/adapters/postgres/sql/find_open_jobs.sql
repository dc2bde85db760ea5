-- Whom a unique key belongs to; looked up after enqueuing, for only then is another's commit seen.
SELECT jobs.id, jobs.type, jobs.unique_key
FROM unnest(cast(:types AS text[]), cast(:unique_keys AS text[])) AS wanted (type, unique_key)
CROSS JOIN LATERAL (
    SELECT * FROM jobs
    WHERE jobs.type = wanted.type AND jobs.unique_key = wanted.unique_key
    AND jobs.unique_key IS NOT NULL AND jobs.state IN ('pending', 'processing', 'paused')
    LIMIT 1
) AS jobs
