-- Steps from one destination with ready deliveries to the next, however many each has; one that takes nothing costs a step, not its
-- backlog. Floors begin each look behind what this process has consumed and vacuum could not yet remove. OFFSET 0 keeps the steps lazy
-- and in order: no more are taken than the limit needs. Under the advisory lock one claim at a time counts what a destination has in
-- flight, by in_flight(), which sees what was committed before the lock was had; what is making room, of the caller's own, is not
-- counted, unless its destination is being tried out. Leasing and recording what others lost is the same statement, so that no two
-- callers can take the same delivery.
WITH clock AS MATERIALIZED (
    -- a claim does not wait for the disk: one that a crash of PostgreSQL forgets was never made, and its holder is fenced off
    SELECT pinned, coalesce(pinned, clock_timestamp()) AS now, set_config('synchronous_commit', 'off', TRUE)
    FROM (SELECT cast(:now AS timestamptz) AS pinned OFFSET 0) AS given
),
-- values that can be seen would be planned for anew at each claim, which takes longer than to carry it out
wanted AS MATERIALIZED (
    SELECT cast(:limit AS bigint) AS number, cast(:making_room AS uuid[]) AS making_room
),
stretch AS MATERIALIZED (
    SELECT
        given.destination_id COLLATE "C" AS destination_id,
        given.due_at,
        given.id COLLATE "C" AS id,
        -- where the clock has gone back, leases begin before it, and all are counted
        CASE WHEN given.since <= clock.now THEN given.since ELSE '-infinity' END AS since,
        given.behind COLLATE "C" AS behind,
        given.before COLLATE "C" AS before
    FROM clock, json_to_recordset(cast(:stretches AS json)) AS given (
        destination_id text, due_at timestamptz, id text, since timestamptz, behind text, before text
    )
),
usable AS MATERIALIZED (
    SELECT
        lane.destination_id,
        lane.due_at AS first_due_at,
        lane.id AS first_id,
        target.*,
        lock.destination_id IS NOT NULL AS locked,
        held.oldest,
        target.capacity - held.number AS room,
        coalesce((SELECT pinned FROM clock), held.seen_at) AS now
    FROM stretch
    CROSS JOIN LATERAL (
        -- the first that is ready: what lies before it has been stepped over, and is not met again below
        SELECT first.destination_id, first.due_at, first.id, stretch.since
        FROM (
            SELECT
                cast(deliveries.destination_id AS text) AS destination_id, deliveries.due_at, cast(deliveries.id AS text) AS id
            FROM deliveries
            WHERE deliveries.ready AND deliveries.destination_id = stretch.destination_id
            AND (deliveries.due_at, deliveries.id) > (stretch.due_at, stretch.id)
            ORDER BY deliveries.due_at, deliveries.id LIMIT 1
        ) AS first
        UNION ALL
        SELECT cast(step.destination_id AS text), step.due_at, cast(step.id AS text), '-infinity'
        FROM (
            WITH RECURSIVE step (destination_id, due_at, id) AS (
                (
                    SELECT deliveries.destination_id, deliveries.due_at, deliveries.id FROM deliveries
                    WHERE deliveries.ready
                    AND deliveries.destination_id > stretch.behind AND deliveries.destination_id < stretch.before
                    ORDER BY deliveries.destination_id, deliveries.due_at, deliveries.id LIMIT 1
                )
                UNION ALL
                SELECT following.destination_id, following.due_at, following.id
                FROM step
                CROSS JOIN LATERAL (
                    SELECT deliveries.destination_id, deliveries.due_at, deliveries.id FROM deliveries
                    WHERE deliveries.ready
                    AND deliveries.destination_id > step.destination_id AND deliveries.destination_id < stretch.before
                    ORDER BY deliveries.destination_id, deliveries.due_at, deliveries.id LIMIT 1
                ) AS following
            )
            SELECT destination_id, due_at, id FROM step
        ) AS step
    ) AS lane
    CROSS JOIN LATERAL (
        SELECT
            destinations.form_id,
            destinations.url,
            destinations.state,
            cast(destinations.secrets AS text) AS secrets,
            cast(destinations.headers AS text) AS headers,
            destinations.max_in_flight,
            destinations.created_at,
            CASE WHEN trouble.openings > 0 THEN 1 ELSE destinations.max_in_flight END AS capacity,
            CASE WHEN trouble.openings > 0 THEN '{}' ELSE (SELECT making_room FROM wanted) END AS making_room,
            CASE
                WHEN destinations.deleted_at IS NOT NULL THEN 'destination_deleted'
                WHEN destinations.state = 'disabled' THEN 'destination_disabled'
            END AS stranded
        FROM destinations
        LEFT JOIN LATERAL (
            SELECT openings, held_until FROM destination_trouble
            WHERE destination_trouble.destination_id = destinations.id
            OFFSET 0
        ) AS trouble ON TRUE
        WHERE destinations.id = lane.destination_id
        AND (
            destinations.deleted_at IS NOT NULL
            OR destinations.state = 'disabled'
            OR (
                destinations.state = 'active'
                AND (trouble.held_until IS NULL OR trouble.held_until <= (SELECT now FROM clock))
            )
        )
        OFFSET 0
    ) AS target
    CROSS JOIN LATERAL (
        SELECT
            CASE
                WHEN target.stranded IS NULL AND pg_try_advisory_xact_lock(hashtextextended(lane.destination_id, 0))
                    THEN lane.destination_id
            END AS destination_id
        OFFSET 0
    ) AS lock
    CROSS JOIN LATERAL in_flight(lock.destination_id, lane.since, target.making_room) AS held
    WHERE lock.destination_id IS NULL OR target.capacity > held.number
    LIMIT (SELECT number FROM wanted)
),
lane AS MATERIALIZED (
    SELECT
        found.*,
        CASE
            WHEN found.locked
                THEN least(
                    found.room,
                    wanted.number / found.ours + cast(found.turn <= wanted.number % found.ours AS integer)
                )
        END AS share
    FROM (
        SELECT
            usable.*,
            count(*) FILTER (WHERE usable.locked) OVER (ROWS UNBOUNDED PRECEDING) AS turn,
            count(*) FILTER (WHERE usable.locked) OVER () AS ours
        FROM usable
    ) AS found
    CROSS JOIN wanted
),
due AS MATERIALIZED (
    SELECT picked.*, lane.now
    FROM lane
    CROSS JOIN LATERAL (
        SELECT
            deliveries.ctid AS place, deliveries.due_at, deliveries.state = 'processing' AS lost, deliveries.lease_since
        FROM deliveries
        WHERE deliveries.ready AND deliveries.destination_id = lane.destination_id
        AND (deliveries.due_at, deliveries.id) >= (lane.first_due_at, lane.first_id COLLATE "C")
        ORDER BY deliveries.due_at, deliveries.id
        LIMIT lane.share
        FOR UPDATE SKIP LOCKED
    ) AS picked
    WHERE lane.locked
),
claimed AS (
    UPDATE deliveries
    SET
        state = 'processing',
        attempt_count = deliveries.attempt_count + 1,
        lost_in_a_row = deliveries.lost_in_a_row + cast(due.lost AS integer),
        due_at = due.now + cast(:lease AS interval),
        ready = FALSE,
        lease_token = gen_random_uuid(),
        lease_since = due.now
    FROM due
    WHERE deliveries.ctid = due.place
    RETURNING deliveries.*, due.lost, due.due_at AS came_due_at, due.lease_since AS lost_since
),
lost AS (
    INSERT INTO attempts (delivery_id, number, started_at, outcome, truncated, late)
    SELECT id, attempt_count - 1, lost_since, 'lease_lost', FALSE, FALSE FROM claimed WHERE lost
    -- its number may have been that of a claim which a crash of PostgreSQL forgot, and whose holder told what became of it
    ON CONFLICT (delivery_id, number) DO NOTHING
)
SELECT
    destination_id,
    stranded,
    locked,
    room,
    share,
    oldest,
    now,
    form_id,
    url,
    state,
    secrets,
    headers,
    max_in_flight,
    created_at,
    NULL AS id,
    NULL AS message_id,
    NULL AS attempt_count,
    NULL AS cycle_attempt_count,
    NULL AS lost_in_a_row,
    NULL AS due_at,
    NULL AS came_due_at,
    NULL AS lease_token,
    NULL AS lease_since,
    NULL AS lost,
    NULL AS type,
    NULL AS submission_id,
    NULL AS body
FROM lane
UNION ALL
SELECT
    claimed.destination_id,
    NULL,
    NULL,
    NULL,
    NULL,
    NULL,
    NULL,
    messages.form_id,
    NULL,
    claimed.state,
    NULL,
    NULL,
    NULL,
    claimed.created_at,
    claimed.id,
    claimed.message_id,
    claimed.attempt_count,
    claimed.cycle_attempt_count,
    claimed.lost_in_a_row,
    claimed.due_at,
    claimed.came_due_at,
    cast(claimed.lease_token AS text),
    claimed.lease_since,
    claimed.lost,
    messages.type,
    messages.submission_id,
    messages.body
FROM claimed
JOIN messages ON messages.id = claimed.message_id
