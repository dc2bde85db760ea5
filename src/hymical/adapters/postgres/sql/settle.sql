-- The token is the fence: a holder that was overtaken ends nothing, and its late attempt only completes the record of its own number.
WITH clock AS MATERIALIZED (
    SELECT coalesce(cast(:now AS timestamptz), clock_timestamp()) AS now
),
report AS MATERIALIZED (
    SELECT *
    FROM unnest(
        cast(:ids AS text[]), cast(:tokens AS uuid[]), cast(:states AS text[]), cast(:delays AS interval[]),
        cast(:spends AS boolean[]), cast(:failure_reasons AS text[]),
        cast(:numbers AS integer[]), cast(:started_ats AS timestamptz[]), cast(:durations AS bigint[]),
        cast(:outcomes AS text[]), cast(:statuses AS smallint[]), cast(:errors AS text[]), cast(:excerpts AS text[]),
        cast(:truncated AS boolean[]), cast(:addresses AS text[])
    ) AS report (
        id, token, state, delay, spends, failure_reason,
        number, started_at, duration_ms, outcome, response_status, error, response_excerpt, truncated,
        remote_address
    )
),
settled AS (
    UPDATE deliveries
    SET
        state = report.state,
        cycle_attempt_count = deliveries.cycle_attempt_count + cast(report.spends AS integer),
        lost_in_a_row = 0,
        due_at = clock.now + report.delay,
        ready = FALSE,
        lease_token = NULL,
        lease_since = NULL,
        completed_at = CASE WHEN report.state = 'pending' THEN NULL ELSE clock.now END,
        failure_reason = report.failure_reason
    FROM report, clock
    WHERE deliveries.id = report.id AND deliveries.lease_token = report.token
    RETURNING deliveries.id, report.token
),
unsettled AS MATERIALIZED (
    SELECT report.id, report.token FROM report WHERE NOT EXISTS (SELECT FROM settled WHERE settled.token = report.token)
),
-- What was settled is erased after this, if at all. The rest may be under erasure right now: that is waited for, and seen.
late AS MATERIALIZED (
    SELECT unsettled.token, length(messages.body) = 0 AS erased
    FROM unsettled
    JOIN deliveries ON deliveries.id = unsettled.id
    JOIN messages ON messages.id = deliveries.message_id
    FOR SHARE OF messages
),
recorded AS (
    INSERT INTO attempts (
        delivery_id, number, started_at, duration_ms, outcome, response_status, error, response_excerpt, truncated, remote_address, late
    )
    SELECT
        report.id, report.number, report.started_at, report.duration_ms, report.outcome,
        report.response_status,
        -- a receiver may have echoed what was erased meanwhile
        CASE WHEN NOT coalesce(late.erased, FALSE) THEN report.error END,
        CASE WHEN NOT coalesce(late.erased, FALSE) THEN report.response_excerpt END,
        report.truncated,
        report.remote_address,
        FALSE
    FROM report
    JOIN deliveries ON deliveries.id = report.id
    LEFT JOIN late ON late.token = report.token
    -- counting makes the update above come first: taken the other way round, a claim and a settle could wait for each other
    WHERE report.outcome IS NOT NULL AND (SELECT count(*) FROM settled) >= 0
    ON CONFLICT (delivery_id, number) DO UPDATE
    SET
        started_at = excluded.started_at,
        duration_ms = excluded.duration_ms,
        outcome = excluded.outcome,
        response_status = excluded.response_status,
        error = excluded.error,
        response_excerpt = excluded.response_excerpt,
        truncated = excluded.truncated,
        remote_address = excluded.remote_address,
        late = TRUE
    WHERE attempts.outcome = 'lease_lost'
)
SELECT
    report.id,
    report.token,
    CASE
        WHEN settled.id IS NOT NULL THEN 'settled'
        WHEN EXISTS (
            SELECT FROM attempts
            WHERE attempts.delivery_id = report.id AND attempts.number = report.number
            AND (attempts.outcome <> 'lease_lost' OR attempts.late)
        ) THEN 'repeated'
        WHEN late.erased
            OR deliveries.failure_reason IN ('destination_disabled', 'destination_deleted', 'submission_deleted')
            THEN 'withdrawn'
        ELSE 'overtaken'
    END AS verdict,
    trouble.destination_id IS NOT NULL AS troubled
FROM report
-- a delivery may be there twice, once from a holder that was overtaken
LEFT JOIN settled ON settled.id = report.id AND settled.token = report.token
LEFT JOIN late ON late.token = report.token
LEFT JOIN deliveries ON deliveries.id = report.id
LEFT JOIN LATERAL (
    SELECT destination_id FROM destination_trouble
    WHERE destination_trouble.destination_id = deliveries.destination_id
    OFFSET 0
) AS trouble ON TRUE
