-- What has come due, a retry or the end of a lease, moves over to what may be claimed; one row at a time would be a scan per claim.
WITH due AS MATERIALIZED (
    SELECT id FROM deliveries
    WHERE NOT ready AND due_at <= coalesce(cast(:now AS timestamptz), clock_timestamp())
    ORDER BY due_at, id
    LIMIT 1000
    FOR UPDATE SKIP LOCKED
)
UPDATE deliveries SET ready = TRUE FROM due WHERE deliveries.id = due.id
