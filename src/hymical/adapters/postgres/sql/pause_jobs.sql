-- Fenced as in settle_jobs, with the event that tells of the question. An answer that came before it, and that fits,
-- makes it pending at once; one that was given to a question under the same key is asked for anew.
WITH clock AS MATERIALIZED (
    SELECT coalesce(cast(:now AS timestamptz), clock_timestamp()) AS now
),
report AS MATERIALIZED (
    SELECT *
    FROM unnest(
        cast(:ids AS text[]), cast(:tokens AS uuid[]), cast(:keys AS text[]), cast(:questions AS text[]),
        cast(:choices AS text[]), cast(:answer_within AS interval[]),
        cast(:steps AS text[]), cast(:statuses AS text[]), cast(:messages AS text[])
    ) AS report (id, token, key, question, choices, answer_within, step, status, message)
),
held AS MATERIALIZED (
    SELECT
        report.*,
        coalesce(
            cast(jobs.answers -> report.key ->> 'early' AS boolean)
            AND (
                report.choices IS NULL
                OR jsonb_exists(cast(report.choices AS jsonb), jobs.answers -> report.key ->> 'text')
            ),
            FALSE
        ) AS answered
    FROM report
    JOIN jobs ON jobs.id = report.id AND jobs.state = 'processing' AND jobs.lease_token = report.token
    ORDER BY jobs.id
    FOR UPDATE OF jobs
),
settled AS (
    UPDATE jobs
    SET
        state = CASE WHEN held.answered THEN 'pending' ELSE 'paused' END,
        run_at = CASE WHEN held.answered THEN clock.now ELSE jobs.run_at END,
        lost_in_a_row = 0,
        lease_until = NULL,
        question = CASE WHEN NOT held.answered THEN cast(held.question AS json) END,
        answer_by = CASE WHEN NOT held.answered THEN clock.now + held.answer_within END,
        answers = CASE
            WHEN held.answered THEN jsonb_set(jobs.answers, ARRAY[held.key, 'early'], 'false')
            ELSE jobs.answers - held.key
        END,
        event_count = jobs.event_count + cast(held.step IS NOT NULL AS integer)
    FROM held, clock
    WHERE jobs.id = held.id
    RETURNING jobs.id, jobs.queue, jobs.event_count, held.token, held.answered, held.step, held.status, held.message
),
told AS (
    INSERT INTO job_events (job_id, number, at, step, status, message)
    SELECT settled.id, settled.event_count, clock.now, settled.step, settled.status, cast(settled.message AS json)
    FROM settled, clock
    WHERE settled.step IS NOT NULL
),
nudged AS MATERIALIZED (
    SELECT pg_notify('hymical_job_events', id) FROM settled WHERE event_count > 0
),
woken AS MATERIALIZED (
    SELECT pg_notify('hymical_jobs', due.queue) FROM (SELECT DISTINCT queue FROM settled WHERE answered) AS due
)
SELECT
    cast(report.token AS text),
    CASE
        WHEN settled.id IS NOT NULL THEN 'settled'
        WHEN jobs.lease_token = report.token AND jobs.state <> 'processing' THEN 'repeated'
        ELSE 'lost'
    END AS verdict
FROM report
CROSS JOIN (SELECT count(*) FROM nudged) AS nudges
CROSS JOIN (SELECT count(*) FROM woken) AS calls
LEFT JOIN settled ON settled.id = report.id AND settled.token = report.token
LEFT JOIN jobs ON jobs.id = report.id
