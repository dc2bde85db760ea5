-- The token is the fence: a holder that was overtaken ends nothing, and its late attempt only completes the record of its own number.
-- The batch is one parameter, written as JSON, and what ended as it should is not answered: both are the driver's longest work.
WITH clock AS MATERIALIZED (
    SELECT coalesce(cast(:now AS timestamptz), clock_timestamp()) AS now
),
report AS MATERIALIZED (
    SELECT *
    FROM json_to_recordset(cast(:batch AS json)) AS report (
        nth integer, id text, token uuid, state text, delay interval, spends integer, failure_reason text,
        number integer, started_at timestamptz, duration_ms bigint, outcome text, response_status smallint, error text,
        response_excerpt text, truncated boolean, remote_address text
    )
),
settled AS (
    UPDATE deliveries
    SET
        state = report.state,
        cycle_attempt_count = deliveries.cycle_attempt_count + report.spends,
        lost_in_a_row = 0,
        due_at = clock.now + report.delay,
        ready = FALSE,
        lease_token = NULL,
        lease_since = NULL,
        completed_at = CASE WHEN report.state = 'pending' THEN NULL ELSE clock.now END,
        failure_reason = report.failure_reason
    FROM report, clock
    WHERE deliveries.id = report.id AND deliveries.lease_token = report.token
    AND (
        NOT cast(:unless_troubled AS boolean)
        OR NOT EXISTS (
            SELECT FROM destination_trouble WHERE destination_trouble.destination_id = deliveries.destination_id
        )
    )
    RETURNING report.*, deliveries.destination_id
),
-- a delivery may be there twice, once from a holder that was overtaken
unsettled AS MATERIALIZED (
    SELECT
        report.*,
        deliveries.message_id,
        deliveries.destination_id,
        deliveries.failure_reason AS known_reason,
        cast(:unless_troubled AS boolean) AND deliveries.lease_token = report.token AS left_alone
    FROM report
    LEFT JOIN deliveries ON deliveries.id = report.id
    -- counting makes the update above come first: taken the other way round, a claim and a settle could wait for each other
    WHERE (SELECT count(*) FROM settled) < (SELECT count(*) FROM report)
    AND NOT EXISTS (SELECT FROM settled WHERE settled.nth = report.nth)
),
-- What was settled is erased after this, if at all. The rest may be under erasure right now: that is waited for, and seen.
late AS MATERIALIZED (
    SELECT unsettled.nth, length(messages.body) = 0 AS erased
    FROM unsettled
    JOIN messages ON messages.id = unsettled.message_id
    WHERE unsettled.left_alone IS NOT TRUE
    FOR SHARE OF messages
),
recorded AS (
    INSERT INTO attempts (
        delivery_id, number, started_at, duration_ms, outcome, response_status, error, response_excerpt, truncated,
        remote_address, late
    )
    SELECT
        id, number, started_at, duration_ms, outcome, response_status, error, response_excerpt, truncated, remote_address,
        FALSE
    FROM settled
    WHERE outcome IS NOT NULL
    -- a crash of PostgreSQL may forget a claim, as claim.sql says: its number is given again, and may be recorded already, late
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
        late = FALSE
),
recorded_late AS (
    INSERT INTO attempts (
        delivery_id, number, started_at, duration_ms, outcome, response_status, error, response_excerpt, truncated,
        remote_address, late
    )
    SELECT DISTINCT ON (unsettled.id, unsettled.number)
        unsettled.id, unsettled.number, unsettled.started_at, unsettled.duration_ms, unsettled.outcome,
        unsettled.response_status,
        -- a receiver may have echoed what was erased meanwhile
        CASE WHEN NOT late.erased THEN unsettled.error END,
        CASE WHEN NOT late.erased THEN unsettled.response_excerpt END,
        unsettled.truncated,
        unsettled.remote_address,
        FALSE
    FROM unsettled
    JOIN late ON late.nth = unsettled.nth
    WHERE unsettled.outcome IS NOT NULL
    AND NOT EXISTS (SELECT FROM settled WHERE settled.id = unsettled.id AND settled.number = unsettled.number)
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
    ended.nth,
    ended.verdict,
    EXISTS (SELECT FROM destination_trouble WHERE destination_trouble.destination_id = ended.destination_id) AS troubled
FROM (
    SELECT settled.nth, 'settled' AS verdict, settled.destination_id
    FROM settled
    WHERE EXISTS (
        SELECT FROM destination_trouble WHERE destination_trouble.destination_id = settled.destination_id
    )
    UNION ALL
    SELECT
        unsettled.nth,
        CASE
            WHEN unsettled.left_alone THEN 'troubled'
            WHEN EXISTS (
                SELECT FROM attempts
                WHERE attempts.delivery_id = unsettled.id AND attempts.number = unsettled.number
                AND (attempts.outcome <> 'lease_lost' OR attempts.late)
            ) THEN 'repeated'
            WHEN late.erased
                OR unsettled.known_reason IN ('destination_disabled', 'destination_deleted', 'submission_deleted')
                THEN 'withdrawn'
            ELSE 'overtaken'
        END,
        unsettled.destination_id
    FROM unsettled
    LEFT JOIN late ON late.nth = unsettled.nth
) AS ended
