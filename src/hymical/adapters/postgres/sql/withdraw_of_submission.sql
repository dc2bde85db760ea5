-- Whoever holds one of them loses its token here, and finds the reason when it reports.
WITH clock AS MATERIALIZED (
    SELECT coalesce(cast(:now AS timestamptz), clock_timestamp()) AS now
),
unwanted AS MATERIALIZED (
    SELECT deliveries.id FROM deliveries
    JOIN messages ON messages.id = deliveries.message_id
    WHERE messages.submission_id = :submission_id AND deliveries.due_at IS NOT NULL
    ORDER BY deliveries.id
    FOR UPDATE OF deliveries
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
