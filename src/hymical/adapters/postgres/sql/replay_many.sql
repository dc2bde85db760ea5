-- In the order of ids, and messages before deliveries as an erasure takes them, so that nobody waits in a circle; what another has
-- replayed meanwhile is passed over, and what is being erased is seen as erased.
WITH clock AS MATERIALIZED (
    SELECT coalesce(cast(:now AS timestamptz), clock_timestamp()) AS now
),
batch AS MATERIALIZED (
    SELECT
        deliveries.id,
        CASE
            WHEN deliveries.failure_reason IN ('destination_deleted', 'submission_deleted') THEN deliveries.failure_reason
            WHEN length(messages.body) = 0 THEN 'submission_deleted'
            WHEN destinations.deleted_at IS NOT NULL THEN 'destination_deleted'
            WHEN destinations.state = 'disabled' THEN 'destination_disabled'
        END AS hindrance
    FROM deliveries
    JOIN messages ON messages.id = deliveries.message_id
    JOIN destinations ON destinations.id = deliveries.destination_id
    WHERE deliveries.state = 'failed' AND deliveries.id > :after AND deliveries.completed_at < :before
    AND (cast(:failed_after AS timestamptz) IS NULL OR deliveries.completed_at > cast(:failed_after AS timestamptz))
    AND (cast(:destination_id AS text) IS NULL OR deliveries.destination_id = :destination_id)
    AND (cast(:form_id AS text) IS NULL OR destinations.form_id = :form_id)
    AND (cast(:submission_id AS text) IS NULL OR messages.submission_id = :submission_id)
    AND (cast(:reason AS text) IS NULL OR deliveries.failure_reason = :reason)
    ORDER BY deliveries.id
    LIMIT :limit
    FOR SHARE OF messages
),
replayed AS (
    UPDATE deliveries
    SET
        state = 'pending',
        cycle_attempt_count = 0,
        lost_in_a_row = 0,
        due_at = clock.now,
        ready = TRUE,
        completed_at = NULL,
        failure_reason = NULL
    FROM batch, clock
    WHERE deliveries.id = batch.id AND batch.hindrance IS NULL AND deliveries.state = 'failed'
    RETURNING deliveries.id
),
woken AS MATERIALIZED (
    SELECT pg_notify('hymical_deliveries', '') WHERE EXISTS (SELECT FROM replayed)
)
SELECT
    batch.hindrance,
    max(batch.id) AS last,
    count(*) AS looked_at,
    count(*) FILTER (WHERE batch.hindrance IS NOT NULL OR replayed.id IS NOT NULL) AS number
FROM batch
CROSS JOIN (SELECT count(*) FROM woken) AS counted
LEFT JOIN replayed ON replayed.id = batch.id
GROUP BY batch.hindrance
