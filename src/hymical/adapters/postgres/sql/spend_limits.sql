-- A batch takes its buckets in one order, sources then forms, each by key, and whatever it only tidies up after all of them without waiting: two batches never wait for each other.
WITH clock AS MATERIALIZED (
    SELECT coalesce(cast(:now AS timestamptz), clock_timestamp()) AS now
),
source AS MATERIALIZED (
    SELECT key, step, requests, asked
    FROM json_to_recordset(cast(:sources AS json)) AS source (key bytea, step bigint, requests bigint, asked bigint)
),
spent_source AS (
    INSERT INTO rate_limits AS bucket (key, tat, granted)
    SELECT
        source.key,
        clock.now + least(source.asked, source.requests) * source.step * interval '1 microsecond',
        least(source.asked, source.requests)
    FROM source, clock
    ORDER BY source.key
    -- what is read here is the row as the last holder left it, whenever this statement began
    ON CONFLICT (key) DO UPDATE SET (tat, granted) = (
        SELECT
            greatest(bucket.tat, clock.now) + room.granted * source.step * interval '1 microsecond',
            room.granted
        FROM source, clock, LATERAL (
            SELECT least(source.asked, greatest(0, (
                source.requests * source.step
                - cast(extract(EPOCH FROM greatest(bucket.tat, clock.now) - clock.now) * 1000000 AS bigint)
            ) / source.step)) AS granted
        ) AS room
        WHERE source.key = excluded.key
    )
    -- no xmax: the row is new
    RETURNING bucket.key, bucket.tat, bucket.granted, bucket.xmax = 0 AS is_new
),
-- all sources come before any form; and looked up by its place in an array each post finds its own at once
granted AS MATERIALIZED (
    SELECT array_agg(spent_source.granted ORDER BY spent_source.key) AS of_sources FROM spent_source
),
form AS MATERIALIZED (
    SELECT form.key, form.step, form.requests, count(*) AS asked
    FROM json_to_recordset(cast(:posts AS json)) AS post (source integer, nth bigint, form integer)
    JOIN json_to_recordset(cast(:forms AS json)) AS form (key bytea, step bigint, requests bigint, place integer)
    ON form.place = post.form
    CROSS JOIN granted
    WHERE post.source IS NULL OR post.nth <= granted.of_sources[post.source]
    GROUP BY form.key, form.step, form.requests
),
spent_form AS (
    INSERT INTO rate_limits AS bucket (key, tat, granted)
    SELECT
        form.key,
        clock.now + least(form.asked, form.requests) * form.step * interval '1 microsecond',
        least(form.asked, form.requests)
    FROM form, clock
    ORDER BY form.key
    ON CONFLICT (key) DO UPDATE SET (tat, granted) = (
        SELECT
            greatest(bucket.tat, clock.now) + room.granted * form.step * interval '1 microsecond',
            room.granted
        FROM form, clock, LATERAL (
            SELECT least(form.asked, greatest(0, (
                form.requests * form.step
                - cast(extract(EPOCH FROM greatest(bucket.tat, clock.now) - clock.now) * 1000000 AS bigint)
            ) / form.step)) AS granted
        ) AS room
        WHERE form.key = excluded.key
    )
    RETURNING bucket.key, bucket.tat, bucket.granted, bucket.xmax = 0 AS is_new
),
-- only a new row makes the table grow, so only a new row pays: it looks at the two behind it, and as keys are digests that
-- is a look at any two. Half of what is looked at being long full is enough to keep as many rows as are added.
neighbour AS MATERIALIZED (
    SELECT behind.key
    FROM (SELECT key, is_new FROM spent_source UNION ALL SELECT key, is_new FROM spent_form) AS spent
    CROSS JOIN LATERAL (
        SELECT rate_limits.key FROM rate_limits WHERE rate_limits.key > spent.key ORDER BY rate_limits.key LIMIT 2
    ) AS behind
    WHERE spent.is_new AND (SELECT count(*) FROM spent_form) >= 0
),
forgotten AS (
    DELETE FROM rate_limits
    WHERE key = ANY (ARRAY(
        SELECT full_again.key
        FROM neighbour JOIN rate_limits AS full_again ON full_again.key = neighbour.key
        CROSS JOIN clock
        WHERE full_again.tat < clock.now - cast(:forgotten_after AS interval)
        FOR UPDATE OF full_again SKIP LOCKED
    ))
)
SELECT clock.now, spent.key, spent.tat, spent.granted
FROM (SELECT key, tat, granted FROM spent_source UNION ALL SELECT key, tat, granted FROM spent_form) AS spent, clock
