-- What has come due, a retry or the end of a lease, moves over to what may be claimed, so that a claim never steps over what is not due.
-- The time is a sub-select, for a volatile function cannot bound an index scan.
WITH due AS MATERIALIZED (
    SELECT id FROM deliveries
    WHERE due_at IS NOT NULL AND NOT ready
    AND due_at <= (SELECT coalesce(cast(:now AS timestamptz), clock_timestamp()))
    ORDER BY due_at, id
    LIMIT 1000
    FOR UPDATE SKIP LOCKED
)
UPDATE deliveries SET ready = TRUE FROM due WHERE deliveries.id = due.id
