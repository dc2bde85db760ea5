-- Fenced; in one transaction with an effect, its lock on the job's row keeps every other holder out until the commit.
UPDATE jobs
SET checkpoint = cast(:checkpoint AS json)
WHERE jobs.id = :id AND jobs.state = 'processing' AND jobs.lease_token = :token
RETURNING jobs.id
