-- Conditional, so that of two simultaneous replays exactly one wins.
WITH clock AS MATERIALIZED (
    SELECT coalesce(cast(:now AS timestamptz), clock_timestamp()) AS now
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
    FROM clock, messages, destinations
    WHERE deliveries.id = :id AND deliveries.state = 'failed'
    AND deliveries.failure_reason NOT IN ('destination_deleted', 'submission_deleted')
    AND messages.id = deliveries.message_id AND length(messages.body) > 0
    AND destinations.id = deliveries.destination_id AND destinations.deleted_at IS NULL
    AND destinations.state <> 'disabled'
    RETURNING deliveries.id
)
SELECT pg_notify('hymical_deliveries', '') FROM replayed
