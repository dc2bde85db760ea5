-- What replay_many would send, up to a bound: beyond it a person decides the same, and counting on takes its time.
SELECT count(*) AS deliveries, count(DISTINCT found.destination_id) AS destinations
FROM (
    SELECT deliveries.destination_id
    FROM deliveries
    JOIN messages ON messages.id = deliveries.message_id
    JOIN destinations ON destinations.id = deliveries.destination_id
    WHERE deliveries.state = 'failed' AND deliveries.id > :after AND deliveries.completed_at < :before
    AND (cast(:failed_after AS timestamptz) IS NULL OR deliveries.completed_at > cast(:failed_after AS timestamptz))
    AND (cast(:destination_id AS text) IS NULL OR deliveries.destination_id = :destination_id)
    AND (cast(:form_id AS text) IS NULL OR destinations.form_id = :form_id)
    AND (cast(:submission_id AS text) IS NULL OR messages.submission_id = :submission_id)
    AND (cast(:reason AS text) IS NULL OR deliveries.failure_reason = :reason)
    AND deliveries.failure_reason NOT IN ('destination_deleted', 'submission_deleted')
    AND length(messages.body) > 0 AND destinations.deleted_at IS NULL AND destinations.state <> 'disabled'
    LIMIT :limit
) AS found
