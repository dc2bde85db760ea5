-- Whoever holds one of them loses its token here, and finds the reason when it reports.
-- Waits for none: who settles one may in turn wait for the destination. What is left open by that, a claim finds stranded.
WITH clock AS MATERIALIZED (
    SELECT coalesce(cast(:now AS timestamptz), clock_timestamp()) AS now
),
unwanted AS MATERIALIZED (
    SELECT deliveries.id FROM deliveries
    WHERE deliveries.id IN (
        SELECT ready.id FROM deliveries AS ready WHERE ready.ready AND ready.destination_id = :destination_id
        UNION ALL
        SELECT later.id FROM deliveries AS later
        WHERE later.due_at IS NOT NULL AND NOT later.ready AND later.destination_id = :destination_id
    ) AND deliveries.due_at IS NOT NULL
    ORDER BY deliveries.id
    FOR UPDATE SKIP LOCKED
)
UPDATE deliveries
SET
    state = 'failed',
    lost_in_a_row = 0,
    due_at = NULL,
    ready = FALSE,
    lease_token = NULL,
    lease_since = NULL,
    completed_at = clock.now,
    failure_reason = :reason
FROM unwanted, clock
WHERE deliveries.id = unwanted.id
