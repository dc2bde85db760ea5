-- Counts stop at a bound, and names are found by leaps through the indexes, so that a backlog costs nothing here.
WITH RECURSIVE clock AS MATERIALIZED (
    SELECT coalesce(cast(:now AS timestamptz), clock_timestamp()) AS now
),
waiting AS (
    SELECT (SELECT jobs.queue FROM jobs WHERE jobs.state = 'pending' ORDER BY jobs.queue LIMIT 1) AS name
    UNION ALL
    SELECT (
        SELECT jobs.queue FROM jobs
        WHERE jobs.state = 'pending' AND jobs.queue > waiting.name
        ORDER BY jobs.queue
        LIMIT 1
    )
    FROM waiting
    WHERE waiting.name IS NOT NULL
),
running AS (
    SELECT (SELECT jobs.queue FROM jobs WHERE jobs.state = 'processing' ORDER BY jobs.queue LIMIT 1) AS name
    UNION ALL
    SELECT (
        SELECT jobs.queue FROM jobs
        WHERE jobs.state = 'processing' AND jobs.queue > running.name
        ORDER BY jobs.queue
        LIMIT 1
    )
    FROM running
    WHERE running.name IS NOT NULL
),
asking AS (
    SELECT DISTINCT jobs.queue AS name FROM jobs WHERE jobs.state = 'paused'
),
live AS MATERIALIZED (
    SELECT workers.queues FROM workers, clock
    WHERE workers.last_seen_at >= clock.now - cast(:live_within AS interval)
),
queue AS MATERIALIZED (
    SELECT name FROM waiting WHERE name IS NOT NULL
    UNION
    SELECT name FROM running WHERE name IS NOT NULL
    UNION
    SELECT name FROM asking
    UNION
    SELECT queue FROM paused_queues
    UNION
    SELECT unnest(live.queues) FROM live
)
SELECT
    queue.name,
    EXISTS (SELECT FROM paused_queues WHERE paused_queues.queue = queue.name) AS paused,
    (
        SELECT count(*)
        FROM (
            SELECT
            FROM generate_series(1, 4) AS rank (priority)
            CROSS JOIN LATERAL (
                SELECT FROM jobs
                WHERE jobs.state = 'pending' AND jobs.queue = queue.name AND jobs.priority = rank.priority
                AND jobs.run_at <= (SELECT now FROM clock)
                LIMIT :at_most
            ) AS jobs
            LIMIT :at_most
        ) AS counted
    ) AS due,
    (
        SELECT count(*)
        FROM (
            SELECT FROM jobs WHERE jobs.state = 'processing' AND jobs.queue = queue.name LIMIT :at_most
        ) AS counted
    ) AS processing,
    (
        SELECT clock.now - min(oldest.run_at)
        FROM generate_series(1, 4) AS rank (priority)
        CROSS JOIN LATERAL (
            SELECT jobs.run_at FROM jobs
            WHERE jobs.state = 'pending' AND jobs.queue = queue.name AND jobs.priority = rank.priority
            AND jobs.run_at <= (SELECT now FROM clock)
            ORDER BY jobs.run_at, jobs.id
            LIMIT 1
        ) AS oldest
    ) AS lag,
    (SELECT count(*) FROM live WHERE queue.name = ANY (live.queues)) AS workers
FROM queue, clock
ORDER BY queue.name
