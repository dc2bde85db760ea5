-- The lock on the file's row comes first: whoever withdraws it waits for the piece, or the piece is refused.
WITH written AS (
    UPDATE exports
    SET
        reached_at = coalesce(cast(:reached_at AS timestamptz), reached_at),
        reached_id = coalesce(cast(:reached_id AS text), reached_id),
        size = size + cast(:length AS bigint),
        chunks = chunks + 1,
        complete = :last,
        expires_at = coalesce(cast(:now AS timestamptz), clock_timestamp()) + cast(:keep AS interval)
    WHERE job_id = :job_id AND withdrawn IS NULL
    RETURNING job_id
)
INSERT INTO export_chunks (job_id, number, body)
SELECT job_id, :number, cast(:body AS bytea) FROM written
RETURNING number
