-- Nothing of an earlier file may stay: its pieces hold what was erased, or belong to other columns.
WITH removed AS (
    DELETE FROM export_chunks WHERE job_id = :job_id
)
INSERT INTO exports (job_id, form_id, received_after, size, chunks, complete, expires_at)
SELECT
    :job_id, :form_id, cast(:received_after AS timestamptz), 0, 0, FALSE,
    coalesce(cast(:now AS timestamptz), clock_timestamp()) + cast(:keep AS interval)
ON CONFLICT (job_id) DO UPDATE
SET
    reached_at = NULL,
    reached_id = NULL,
    size = 0,
    chunks = 0,
    complete = FALSE,
    expires_at = excluded.expires_at,
    withdrawn = NULL
