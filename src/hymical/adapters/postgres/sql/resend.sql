-- A new delivery of the same message, so long as there is something to send and somewhere to send it.
WITH resent AS (
    INSERT INTO deliveries (
        id, message_id, destination_id, state, attempt_count, cycle_attempt_count, lost_in_a_row,
        due_at, ready, created_at
    )
    SELECT
        :new_id, earlier.message_id, earlier.destination_id, 'pending', 0, 0, 0, clock.now, TRUE, clock.now
    FROM deliveries AS earlier
    JOIN destinations ON destinations.id = earlier.destination_id
    JOIN messages ON messages.id = earlier.message_id
    CROSS JOIN (SELECT coalesce(cast(:now AS timestamptz), clock_timestamp()) AS now) AS clock
    WHERE earlier.id = :id AND destinations.deleted_at IS NULL AND destinations.state <> 'disabled'
    AND length(messages.body) > 0
    -- whoever empties it waits for this, or has emptied it when it is looked at again
    FOR SHARE OF messages
    RETURNING id
)
SELECT pg_notify('hymical_deliveries', '') FROM resent
