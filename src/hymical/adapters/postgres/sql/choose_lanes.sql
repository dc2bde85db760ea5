-- Steps from one destination with ready deliveries to the next, however many each has; a blocked one costs a step, not its backlog.
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
    SELECT
        lane.destination_id,
        CASE
            WHEN destinations.deleted_at IS NOT NULL THEN 'destination_deleted'
            WHEN destinations.state = 'disabled' THEN 'destination_disabled'
        END AS stranded
    FROM lane
    JOIN destinations ON destinations.id = lane.destination_id
    LEFT JOIN destination_trouble AS trouble ON trouble.destination_id = lane.destination_id
    CROSS JOIN LATERAL (
        SELECT count(*) AS in_flight FROM deliveries
        WHERE deliveries.state = 'processing' AND deliveries.due_at IS NOT NULL AND NOT deliveries.ready
        AND deliveries.destination_id = lane.destination_id
    ) AS sent
    WHERE destinations.deleted_at IS NOT NULL
    OR destinations.state = 'disabled'
    OR (
        destinations.state = 'active'
        AND (trouble.held_until IS NULL OR trouble.held_until <= coalesce(cast(:now AS timestamptz), clock_timestamp()))
        AND sent.in_flight < CASE WHEN trouble.openings > 0 THEN 1 ELSE destinations.max_in_flight END
    )
    LIMIT :limit
)
SELECT destination_id, stranded, pg_try_advisory_xact_lock(hashtextextended(destination_id, 0)) AS locked
FROM usable
