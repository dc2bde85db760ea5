-- When an idle worker is wanted again: a job's time, another's lease or a question's deadline, whichever comes first.
WITH clock AS MATERIALIZED (
    SELECT coalesce(cast(:now AS timestamptz), clock_timestamp()) AS now
),
queue AS MATERIALIZED (
    SELECT queue.name FROM unnest(cast(:queues AS text[])) AS queue (name)
    WHERE NOT EXISTS (SELECT FROM paused_queues WHERE paused_queues.queue = queue.name)
),
candidate AS (
    SELECT pending.run_at AS at
    FROM queue
    CROSS JOIN generate_series(1, 4) AS rank (priority)
    CROSS JOIN LATERAL (
        SELECT jobs.run_at FROM jobs
        WHERE jobs.state = 'pending' AND jobs.queue = queue.name AND jobs.priority = rank.priority
        AND jobs.run_at > (SELECT now FROM clock)
        ORDER BY jobs.run_at
        LIMIT 1
    ) AS pending
    UNION ALL
    SELECT leased.lease_until
    FROM queue
    CROSS JOIN LATERAL (
        SELECT jobs.lease_until FROM jobs
        WHERE jobs.state = 'processing' AND jobs.queue = queue.name AND jobs.lease_until > (SELECT now FROM clock)
        ORDER BY jobs.lease_until
        LIMIT 1
    ) AS leased
    UNION ALL
    SELECT asked.answer_by
    FROM queue
    CROSS JOIN LATERAL (
        SELECT jobs.answer_by FROM jobs
        WHERE jobs.queue = queue.name AND jobs.answer_by IS NOT NULL AND jobs.answer_by > (SELECT now FROM clock)
        ORDER BY jobs.answer_by
        LIMIT 1
    ) AS asked
)
SELECT min(candidate.at) - (SELECT now FROM clock) AS wait FROM candidate
