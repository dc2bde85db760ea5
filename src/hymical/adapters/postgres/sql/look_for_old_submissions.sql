-- Only locks: what hangs on them is judged by the next statement, which sees whatever was committed until now.
WITH clock AS MATERIALIZED (
    SELECT coalesce(cast(:now AS timestamptz), clock_timestamp()) - cast(:age AS interval) AS before
),
looked_at AS MATERIALIZED (
    SELECT submissions.id
    FROM (SELECT id, received_at FROM submissions WHERE id > :behind ORDER BY id LIMIT :looks) AS submissions, clock
    WHERE submissions.received_at < clock.before
),
old AS MATERIALIZED (
    SELECT submissions.id
    FROM submissions
    WHERE submissions.id IN (SELECT id FROM looked_at)
    ORDER BY submissions.id
    FOR UPDATE SKIP LOCKED
),
messages_too AS MATERIALIZED (
    SELECT messages.id
    FROM messages
    WHERE messages.submission_id IN (SELECT id FROM old)
    ORDER BY messages.id
    FOR UPDATE
)
SELECT
    ARRAY(SELECT id FROM old) AS ids,
    (SELECT max(id) FROM looked_at) AS last,
    (SELECT count(*) FROM looked_at) = :looks AS goes_on,
    (SELECT count(*) FROM messages_too) AS locked
