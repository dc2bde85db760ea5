-- Choosing, leasing and recording what others lost is one statement, so that no two callers can take the same delivery.
WITH clock AS MATERIALIZED (
    SELECT coalesce(cast(:now AS timestamptz), clock_timestamp()) AS now
),
due AS MATERIALIZED (
    SELECT id, state = 'processing' AS lost, attempt_count, lease_since
    FROM deliveries
    WHERE due_at <= (SELECT now FROM clock)
    ORDER BY due_at, id
    LIMIT :limit
    FOR UPDATE SKIP LOCKED
),
lost AS (
    INSERT INTO attempts (delivery_id, number, started_at, outcome)
    SELECT id, attempt_count, lease_since, 'lease_lost' FROM due WHERE lost
),
claimed AS (
    UPDATE deliveries
    SET
        state = 'processing',
        attempt_count = deliveries.attempt_count + 1,
        lost_in_a_row = deliveries.lost_in_a_row + cast(due.lost AS integer),
        due_at = clock.now + cast(:lease AS interval),
        lease_token = gen_random_uuid(),
        lease_since = clock.now
    FROM due, clock
    WHERE deliveries.id = due.id
    RETURNING deliveries.*, due.lost
)
SELECT
    claimed.id,
    claimed.message_id,
    claimed.destination_id,
    claimed.state,
    claimed.attempt_count,
    claimed.cycle_attempt_count,
    claimed.lost_in_a_row,
    claimed.due_at,
    claimed.lease_token,
    claimed.lease_since,
    claimed.created_at,
    claimed.lost,
    messages.type,
    messages.submission_id,
    messages.form_id AS message_form_id,
    messages.body,
    destinations.form_id,
    destinations.url,
    destinations.state AS destination_state,
    destinations.secrets,
    destinations.created_at AS destination_created_at
FROM claimed
JOIN messages ON messages.id = claimed.message_id
JOIN destinations ON destinations.id = claimed.destination_id
ORDER BY claimed.id
