-- Everywhere their values are, as when one is erased; a message that nothing was made of goes altogether.
WITH old AS MATERIALIZED (
    SELECT submissions.id
    FROM unnest(cast(:ids AS text[])) AS submissions (id)
    WHERE NOT EXISTS (
        SELECT FROM messages
        JOIN deliveries ON deliveries.message_id = messages.id
        WHERE messages.submission_id = submissions.id AND deliveries.state <> 'delivered'
    )
),
of_them AS MATERIALIZED (
    SELECT
        messages.id,
        EXISTS (SELECT FROM deliveries WHERE deliveries.message_id = messages.id) AS delivered
    FROM messages
    WHERE messages.submission_id IN (SELECT id FROM old)
),
emptied AS (
    UPDATE messages SET body = '' FROM of_them WHERE messages.id = of_them.id AND of_them.delivered
),
forgotten AS (
    DELETE FROM messages USING of_them WHERE messages.id = of_them.id AND NOT of_them.delivered
),
unsaid AS (
    UPDATE attempts SET response_excerpt = NULL, error = NULL
    FROM deliveries
    WHERE
        deliveries.message_id IN (SELECT id FROM of_them) AND attempts.delivery_id = deliveries.id
        AND (attempts.response_excerpt IS NOT NULL OR attempts.error IS NOT NULL)
),
removed AS (
    DELETE FROM submissions USING old WHERE submissions.id = old.id
)
SELECT count(*) AS removed FROM old
