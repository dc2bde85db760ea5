-- What a back-fill would send, up to a bound; read in the way of past_submissions.
SELECT count(*) AS deliveries, least(count(*), 1) AS destinations
FROM (
    SELECT
    FROM submissions
    WHERE submissions.form_id = (SELECT form_id FROM destinations WHERE id = :destination_id)
    AND NOT submissions.is_spam
    AND submissions.received_at < :before AND (submissions.received_at, submissions.id) > (cast(:after_at AS timestamptz), :after_id)
    AND (cast(:received_after AS timestamptz) IS NULL OR submissions.received_at > cast(:received_after AS timestamptz))
    AND :destination_id NOT IN (
        SELECT delivered.destination_id
        FROM messages
        CROSS JOIN LATERAL (
            SELECT deliveries.destination_id FROM deliveries WHERE deliveries.message_id = messages.id OFFSET 0
        ) AS delivered
        WHERE messages.submission_id = submissions.id
    )
    LIMIT :limit
) AS found
