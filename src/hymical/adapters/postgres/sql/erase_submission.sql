-- Everywhere its values are: the row, the bytes to be sent, and the answers of receivers, which may have echoed them.
WITH emptied AS (
    UPDATE messages SET body = '' WHERE submission_id = :id RETURNING id
),
forgotten AS (
    UPDATE attempts SET response_excerpt = NULL, error = NULL
    FROM deliveries
    WHERE deliveries.message_id IN (SELECT id FROM emptied) AND attempts.delivery_id = deliveries.id
)
DELETE FROM submissions WHERE id = :id RETURNING id
