-- A read that locks nothing: how a worker learns that one of its jobs was cancelled.
SELECT jobs.id
FROM unnest(cast(:ids AS text[]), cast(:tokens AS uuid[])) AS held (id, token)
JOIN jobs ON jobs.id = held.id AND jobs.state = 'processing' AND jobs.lease_token = held.token
