-- Steps from one destination with ready deliveries to the next, however many each has; a blocked one costs a step, not its backlog.
-- OFFSET 0 keeps the steps lazy and in order: no more are taken than the limit needs.
-- The advisory lock lets one claim at a time count what a destination has in flight.
WITH RECURSIVE lane (destination_id) AS (
    (
        SELECT destination_id FROM deliveries
        WHERE ready AND destination_id > cast(:after AS text) AND destination_id <= cast(:until AS text)
        ORDER BY destination_id LIMIT 1
    )
    UNION ALL
    SELECT following.destination_id
    FROM lane
    CROSS JOIN LATERAL (
        SELECT deliveries.destination_id FROM deliveries
        WHERE deliveries.ready
        AND deliveries.destination_id > lane.destination_id AND deliveries.destination_id <= cast(:until AS text)
        ORDER BY deliveries.destination_id LIMIT 1
    ) AS following
),
usable AS MATERIALIZED (
    SELECT lane.destination_id, target.stranded
    FROM lane
    CROSS JOIN LATERAL (
        SELECT
            destinations.state,
            CASE WHEN trouble.openings > 0 THEN 1 ELSE destinations.max_in_flight END AS capacity,
            trouble.held_until,
            CASE
                WHEN destinations.deleted_at IS NOT NULL THEN 'destination_deleted'
                WHEN destinations.state = 'disabled' THEN 'destination_disabled'
            END AS stranded
        FROM destinations
        LEFT JOIN LATERAL (
            SELECT openings, held_until FROM destination_trouble
            WHERE destination_trouble.destination_id = destinations.id
            OFFSET 0
        ) AS trouble ON TRUE
        WHERE destinations.id = lane.destination_id
        OFFSET 0
    ) AS target
    WHERE target.stranded IS NOT NULL
    OR (
        target.state = 'active'
        AND (
            target.held_until IS NULL
            OR target.held_until <= (SELECT coalesce(cast(:now AS timestamptz), clock_timestamp()))
        )
        AND target.capacity > (
            SELECT count(*) FROM deliveries
            WHERE deliveries.state = 'processing' AND deliveries.due_at IS NOT NULL AND NOT deliveries.ready
            AND deliveries.destination_id = lane.destination_id
        )
    )
    LIMIT :limit
)
SELECT destination_id, stranded, pg_try_advisory_xact_lock(hashtextextended(destination_id, 0)) AS locked
FROM usable
