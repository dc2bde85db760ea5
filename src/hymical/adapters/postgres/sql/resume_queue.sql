-- What waited is due now.
WITH resumed AS (
    DELETE FROM paused_queues WHERE paused_queues.queue = :queue RETURNING paused_queues.queue
)
SELECT pg_notify('hymical_jobs', resumed.queue) FROM resumed
