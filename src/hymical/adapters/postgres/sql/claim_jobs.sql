-- Each priority is a range of the index of its own, so that nothing is sorted and what waits for its time is not met;
-- the floors begin each range behind what this process has consumed and vacuum could not yet remove. A claim does not wait for the
-- disk: one that a crash of PostgreSQL forgets was never made, its holder is fenced off, and whatever it settles later is on disk.
WITH clock AS MATERIALIZED (
    SELECT coalesce(cast(:now AS timestamptz), clock_timestamp()) AS now, set_config('synchronous_commit', 'off', TRUE)
),
unanswered AS MATERIALIZED (
    SELECT jobs.id
    FROM jobs
    WHERE jobs.queue = :queue AND jobs.answer_by IS NOT NULL AND jobs.answer_by <= (SELECT now FROM clock)
    ORDER BY jobs.answer_by
    LIMIT :limit
    FOR UPDATE SKIP LOCKED
),
defaulted AS (
    UPDATE jobs
    SET
        state = 'pending',
        run_at = clock.now,
        question = NULL,
        answer_by = NULL,
        answers = coalesce(jobs.answers, '{}') || jsonb_build_object(
            jobs.question ->> 'key',
            jsonb_build_object('text', jobs.question ->> 'default', 'by', 'default', 'at', clock.now)
        )
    FROM unanswered, clock
    WHERE jobs.id = unanswered.id
    RETURNING jobs.id, jobs.event_count
),
nudged AS MATERIALIZED (
    SELECT pg_notify('hymical_job_events', id) FROM defaulted WHERE event_count > 0
),
resumed AS MATERIALIZED (
    SELECT WHERE NOT EXISTS (SELECT FROM paused_queues WHERE paused_queues.queue = :queue)
),
lost AS MATERIALIZED (
    SELECT jobs.id
    FROM resumed
    CROSS JOIN LATERAL (
        SELECT id FROM jobs
        WHERE jobs.state = 'processing' AND jobs.queue = :queue AND jobs.lease_until <= (SELECT now FROM clock)
        ORDER BY jobs.lease_until
        LIMIT :limit
        FOR UPDATE SKIP LOCKED
    ) AS jobs
),
due AS MATERIALIZED (
    SELECT picked.id
    FROM resumed
    CROSS JOIN unnest(
        cast(:priorities AS smallint[]), cast(:floor_run_ats AS timestamptz[]), cast(:floor_ids AS text[])
    ) AS floor (priority, run_at, id)
    CROSS JOIN LATERAL (
        SELECT jobs.id
        FROM jobs
        WHERE jobs.state = 'pending' AND jobs.queue = :queue AND jobs.priority = floor.priority
        AND jobs.run_at <= (SELECT now FROM clock)
        AND (jobs.run_at, jobs.id) > (floor.run_at, floor.id COLLATE "C")
        ORDER BY jobs.run_at, jobs.id
        LIMIT :limit
        FOR UPDATE SKIP LOCKED
    ) AS picked
    LIMIT greatest(cast(:limit AS bigint) - (SELECT count(*) FROM lost), 0)
),
taken AS (
    SELECT id, 1 AS lost FROM lost
    UNION ALL
    SELECT id, 0 FROM due
),
claimed AS (
    UPDATE jobs
    SET
        state = 'processing',
        claim_count = jobs.claim_count + 1,
        lost_in_a_row = jobs.lost_in_a_row + taken.lost,
        lease_token = gen_random_uuid(),
        lease_until = clock.now + cast(:lease AS interval),
        started_at = coalesce(jobs.started_at, clock.now)
    FROM taken, clock
    WHERE jobs.id = taken.id
    RETURNING jobs.*, taken.lost
)
SELECT
    clock.now,
    (SELECT count(*) FROM defaulted) + (SELECT 0 * count(*) FROM nudged) AS defaulted,
    claimed.id,
    claimed.queue,
    claimed.type,
    claimed.version,
    claimed.payload,
    claimed.priority,
    claimed.run_at,
    claimed.claim_count,
    claimed.retry_count,
    claimed.max_retries,
    claimed.lost_in_a_row,
    cast(claimed.lease_token AS text),
    claimed.answers,
    claimed.checkpoint,
    claimed.lost
FROM clock
LEFT JOIN claimed ON TRUE
ORDER BY claimed.priority, claimed.run_at, claimed.id
