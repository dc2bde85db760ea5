-- By how far each file has come, so that no piece has to be read.
WITH erased AS (
    SELECT id, form_id, received_at FROM submissions WHERE id = :submission_id
),
withdrawn AS (
    UPDATE exports SET withdrawn = 'erased'
    FROM erased
    WHERE
        exports.form_id = erased.form_id AND exports.withdrawn IS NULL
        AND (exports.reached_at, exports.reached_id) >= (erased.received_at, erased.id)
        AND (exports.received_after IS NULL OR exports.received_after < erased.received_at)
    RETURNING exports.job_id
)
DELETE FROM export_chunks WHERE job_id IN (SELECT job_id FROM withdrawn)
