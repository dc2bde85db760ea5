-- Messages, their deliveries and the wake-up in one statement: at most one NOTIFY per transaction, for it takes a lock on all.
WITH stored AS (
    INSERT INTO messages (id, type, submission_id, form_id, body)
    SELECT id, type, submission_id, form_id, body
    FROM unnest(
        cast(:message_ids AS text[]), cast(:types AS text[]), cast(:submission_ids AS text[]),
        cast(:form_ids AS text[]), cast(:bodies AS bytea[])
    ) AS batch (id, type, submission_id, form_id, body)
),
owed AS (
    INSERT INTO deliveries (
        id, message_id, destination_id, state, attempt_count, cycle_attempt_count, lost_in_a_row,
        due_at, ready, created_at, completed_at, failure_reason
    )
    SELECT
        id, message_id, destination_id, state, 0, 0, 0,
        due_at, due_at IS NOT NULL, created_at, completed_at, failure_reason
    FROM unnest(
        cast(:ids AS text[]), cast(:of_messages AS text[]), cast(:destination_ids AS text[]), cast(:states AS text[]),
        cast(:due_ats AS timestamptz[]), cast(:created_ats AS timestamptz[]),
        cast(:completed_ats AS timestamptz[]), cast(:failure_reasons AS text[])
    ) AS batch (id, message_id, destination_id, state, due_at, created_at, completed_at, failure_reason)
    RETURNING due_at
)
SELECT pg_notify('hymical_deliveries', '') WHERE EXISTS (SELECT FROM owed WHERE due_at IS NOT NULL)
