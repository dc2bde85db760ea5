-- Fenced like every end of a lease; others are woken, for what is handed back is due at once.
WITH released AS (
    UPDATE deliveries
    SET
        state = 'pending',
        due_at = coalesce(cast(:now AS timestamptz), clock_timestamp()),
        ready = TRUE,
        lease_token = NULL,
        lease_since = NULL
    FROM unnest(cast(:ids AS text[]), cast(:tokens AS uuid[])) AS held (id, token)
    WHERE deliveries.id = held.id AND deliveries.lease_token = held.token
    RETURNING deliveries.id
)
SELECT pg_notify('hymical_deliveries', '') WHERE EXISTS (SELECT FROM released)
