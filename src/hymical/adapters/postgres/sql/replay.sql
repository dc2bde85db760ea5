-- Conditional, so that of two simultaneous replays exactly one wins.
WITH clock AS MATERIALIZED (
    SELECT coalesce(cast(:now AS timestamptz), clock_timestamp()) AS now
),
sendable AS MATERIALIZED (
    SELECT deliveries.id
    FROM deliveries
    JOIN messages ON messages.id = deliveries.message_id
    WHERE deliveries.id = :id AND length(messages.body) > 0
    -- whoever empties it waits for this, or has emptied it when it is looked at again
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
    FROM clock, sendable, destinations
    WHERE deliveries.id = sendable.id AND deliveries.state = 'failed'
    AND deliveries.failure_reason NOT IN ('destination_deleted', 'submission_deleted')
    AND destinations.id = deliveries.destination_id AND destinations.deleted_at IS NULL
    AND destinations.state <> 'disabled'
    RETURNING deliveries.id
)
SELECT pg_notify('hymical_deliveries', '') FROM replayed
