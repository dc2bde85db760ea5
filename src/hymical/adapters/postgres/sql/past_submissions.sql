-- The lock keeps what is read from being erased before the transaction ends, which may make a message of it.
-- OFFSET 0: deliveries are looked up by their message, whatever statistics say of a destination that is new to them.
SELECT
    submissions.*,
    (
        SELECT min(messages.id) FROM messages
        WHERE messages.submission_id = submissions.id AND messages.type = 'submission.received'
    ) AS message_id,
    :destination_id IN (
        SELECT delivered.destination_id
        FROM messages
        CROSS JOIN LATERAL (
            SELECT deliveries.destination_id FROM deliveries WHERE deliveries.message_id = messages.id OFFSET 0
        ) AS delivered
        WHERE messages.submission_id = submissions.id
    ) AS owed
FROM submissions
WHERE submissions.form_id = (SELECT form_id FROM destinations WHERE id = :destination_id)
AND NOT submissions.is_spam
AND submissions.received_at < :before AND (submissions.received_at, submissions.id) > (cast(:after_at AS timestamptz), :after_id)
AND (cast(:received_after AS timestamptz) IS NULL OR submissions.received_at > cast(:received_after AS timestamptz))
ORDER BY submissions.received_at, submissions.id
LIMIT :limit
FOR KEY SHARE OF submissions
