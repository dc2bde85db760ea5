-- What has come due, a retry or the end of a lease, moves over to what may be claimed, so that a claim never steps over what is not due.
-- The time is a sub-select, for a volatile function cannot bound an index scan; the floor lies before what is long dealt with.
WITH clock AS MATERIALIZED (
    SELECT coalesce(cast(:now AS timestamptz), clock_timestamp()) AS now
),
due AS MATERIALIZED (
    SELECT id FROM deliveries
    WHERE due_at IS NOT NULL AND NOT ready
    AND due_at >= cast(:floor AS timestamptz) AND due_at <= (SELECT now FROM clock)
    ORDER BY due_at, id
    LIMIT :limit
    FOR UPDATE SKIP LOCKED
),
promoted AS (
    UPDATE deliveries SET ready = TRUE FROM due WHERE deliveries.id = due.id RETURNING deliveries.destination_id
)
SELECT
    clock.now,
    promoted.destination_id,
    (
        SELECT due_at - clock.now FROM deliveries
        WHERE due_at IS NOT NULL AND NOT ready
        AND due_at > (SELECT now FROM clock) AND due_at <= (SELECT now + cast(:ahead AS interval) FROM clock)
        ORDER BY due_at, id LIMIT 1
    ) AS wait
FROM clock
LEFT JOIN promoted ON TRUE
