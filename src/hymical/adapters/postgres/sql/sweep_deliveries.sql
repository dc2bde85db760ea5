-- In the order in which they were made, and no further than the first that is too young: what is kept is not read.
WITH clock AS MATERIALIZED (
    SELECT coalesce(cast(:now AS timestamptz), clock_timestamp()) - cast(:age AS interval) AS before
),
looked_at AS MATERIALIZED (
    SELECT id, created_at, completed_at FROM deliveries WHERE id > :behind ORDER BY id LIMIT :looks
),
old AS MATERIALIZED (
    SELECT deliveries.id, deliveries.message_id
    FROM looked_at
    JOIN clock ON looked_at.completed_at < clock.before
    JOIN deliveries ON deliveries.id = looked_at.id
    WHERE deliveries.state = 'delivered' AND deliveries.completed_at < clock.before
    ORDER BY deliveries.id
    FOR UPDATE OF deliveries SKIP LOCKED
),
removed AS (
    DELETE FROM deliveries USING old WHERE deliveries.id = old.id
),
forgotten AS (
    DELETE FROM messages
    WHERE
        messages.id IN (SELECT message_id FROM old)
        AND NOT EXISTS (SELECT FROM submissions WHERE submissions.id = messages.submission_id)
        AND NOT EXISTS (
            SELECT FROM deliveries
            WHERE deliveries.message_id = messages.id AND deliveries.id NOT IN (SELECT id FROM old)
        )
)
SELECT
    (SELECT count(*) FROM old) AS removed,
    (SELECT looked_at.id FROM looked_at, clock WHERE looked_at.created_at < clock.before ORDER BY id DESC LIMIT 1) AS last,
    (SELECT count(*) FROM looked_at, clock WHERE looked_at.created_at < clock.before) = :looks AS goes_on
