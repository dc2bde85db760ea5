-- A batch of posts with all that each brings about, in one statement: submission, message, deliveries and wake-up are stored together or
-- not at all, and nothing waits between them. A post that repeats an earlier one is left out, with what it would have brought; those are told.
-- Two unique indexes decide that, so the second of two at the same moment waits for the first. A key lasts as long as its form's window: an older
-- one gives it up here, before anything is inserted. All go by the same order, so that two batches cannot wait for each other; and each first
-- locks whatever holds one of its keys, old or not: at the end of a window, the times of two batches need not agree about that.
WITH batch AS MATERIALIZED (
    SELECT
        post.*,
        decode(post.fingerprint, 'hex') AS digest,
        decode(post.duplicate_key, 'hex') AS repeated_by
    FROM json_to_recordset(cast(:posts AS json)) AS post (
        id text, form_id text, received_at timestamptz, fields text, is_spam boolean, fingerprint text,
        idempotency_key text, duplicate_key text, repeats_since timestamptz, message_id text, type text, body text
    )
    ORDER BY post.duplicate_key, post.idempotency_key
),
met AS MATERIALIZED (
    SELECT submissions.id, submissions.received_at <= batch.repeats_since AS is_over
    FROM batch JOIN submissions ON submissions.duplicate_key = batch.repeated_by
    ORDER BY batch.repeated_by
    FOR NO KEY UPDATE OF submissions
),
given_up AS (
    UPDATE submissions SET duplicate_key = NULL
    FROM met
    WHERE submissions.id = met.id AND met.is_over
    RETURNING submissions.id
),
stored AS (
    INSERT INTO submissions (id, form_id, received_at, fields, is_spam, fingerprint, idempotency_key, duplicate_key)
    SELECT id, form_id, received_at, cast(fields AS json), is_spam, digest, idempotency_key, repeated_by
    FROM batch
    WHERE (SELECT count(*) FROM given_up) >= 0
    ON CONFLICT DO NOTHING
    RETURNING id
),
told AS (
    INSERT INTO messages (id, type, submission_id, form_id, body)
    SELECT message_id, type, id, form_id, convert_to(body, 'UTF8')
    FROM batch
    -- IS TRUE keeps it a look-up by hash
    WHERE message_id IS NOT NULL AND (id IN (SELECT stored.id FROM stored)) IS TRUE
),
owed AS (
    INSERT INTO deliveries (
        id, message_id, destination_id, state, attempt_count, cycle_attempt_count, lost_in_a_row,
        due_at, ready, created_at, completed_at, failure_reason
    )
    SELECT
        id, message_id, destination_id, state, 0, 0, 0,
        due_at, due_at IS NOT NULL, created_at, completed_at, failure_reason
    FROM json_to_recordset(cast(:owed AS json)) AS owed (
        id text, submission_id text, message_id text, destination_id text, state text, due_at timestamptz,
        created_at timestamptz, completed_at timestamptz, failure_reason text
    )
    WHERE (submission_id IN (SELECT stored.id FROM stored)) IS TRUE
    RETURNING due_at
),
woken AS MATERIALIZED (
    SELECT pg_notify('hymical_deliveries', '') WHERE EXISTS (SELECT FROM owed WHERE due_at IS NOT NULL)
)
SELECT batch.id
FROM batch, (SELECT count(*) FROM woken) AS counted
WHERE (batch.id IN (SELECT stored.id FROM stored)) IS NOT TRUE
