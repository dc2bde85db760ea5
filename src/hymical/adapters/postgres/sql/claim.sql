-- Under the locks of choose_lanes, with a snapshot taken after them: what is counted here as in flight is all there is.
-- Choosing, leasing and recording what others lost is one statement, so that no two callers can take the same delivery.
WITH clock AS MATERIALIZED (
    SELECT coalesce(cast(:now AS timestamptz), clock_timestamp()) AS now
),
lane AS MATERIALIZED (
    SELECT
        destinations.id AS destination_id,
        least(
            CASE WHEN trouble.openings > 0 THEN 1 ELSE destinations.max_in_flight END - (
                SELECT count(*) FROM deliveries
                WHERE deliveries.state = 'processing' AND deliveries.due_at IS NOT NULL AND NOT deliveries.ready
                AND deliveries.destination_id = destinations.id
            ),
            chosen.share
        ) AS room
    FROM unnest(cast(:lanes AS text[]), cast(:shares AS bigint[])) AS chosen (destination_id, share)
    JOIN destinations ON destinations.id = chosen.destination_id AND destinations.state = 'active'
    LEFT JOIN LATERAL (
        SELECT openings FROM destination_trouble WHERE destination_trouble.destination_id = destinations.id OFFSET 0
    ) AS trouble ON TRUE
),
due AS MATERIALIZED (
    SELECT picked.*
    FROM lane
    CROSS JOIN LATERAL (
        SELECT deliveries.id, deliveries.state = 'processing' AS lost, deliveries.attempt_count, deliveries.lease_since
        FROM deliveries
        WHERE deliveries.ready AND deliveries.destination_id = lane.destination_id
        ORDER BY deliveries.due_at, deliveries.id
        LIMIT greatest(lane.room, 0)
        FOR UPDATE SKIP LOCKED
    ) AS picked
),
lost AS (
    INSERT INTO attempts (delivery_id, number, started_at, outcome, truncated, late)
    SELECT id, attempt_count, lease_since, 'lease_lost', FALSE, FALSE FROM due WHERE lost
),
claimed AS (
    UPDATE deliveries
    SET
        state = 'processing',
        attempt_count = deliveries.attempt_count + 1,
        lost_in_a_row = deliveries.lost_in_a_row + cast(due.lost AS integer),
        due_at = clock.now + cast(:lease AS interval),
        ready = FALSE,
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
    destinations.headers,
    destinations.max_in_flight,
    destinations.created_at AS destination_created_at
FROM claimed
JOIN messages ON messages.id = claimed.message_id
JOIN destinations ON destinations.id = claimed.destination_id
ORDER BY claimed.id
