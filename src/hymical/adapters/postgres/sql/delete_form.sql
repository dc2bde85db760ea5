-- A form without submissions: what else hangs on it are destinations, with the history of tests and of what was erased.
WITH target AS (
    SELECT id FROM destinations WHERE form_id = :id
),
removed AS (
    DELETE FROM deliveries WHERE destination_id IN (SELECT id FROM target)
),
forgotten AS (
    DELETE FROM messages WHERE form_id = :id
),
well AS (
    DELETE FROM destination_trouble WHERE destination_id IN (SELECT id FROM target)
),
closed AS (
    DELETE FROM destinations WHERE id IN (SELECT id FROM target)
)
DELETE FROM forms WHERE id = :id RETURNING id
