-- Each row is taken once: of those that note the same at once, one raises it and one tells of its end.
WITH clock AS MATERIALIZED (
    SELECT coalesce(cast(:now AS timestamptz), clock_timestamp()) AS now
),
wrong AS MATERIALIZED (
    SELECT kind, subject FROM unnest(cast(:kinds AS text[]), cast(:subjects AS text[])) AS given (kind, subject)
    ORDER BY kind, subject
),
noticed AS (
    INSERT INTO alerts (kind, subject, noticed_at)
    SELECT wrong.kind, wrong.subject, clock.now FROM wrong, clock
    ON CONFLICT (kind, subject) DO NOTHING
),
raised AS (
    UPDATE alerts SET raised_at = clock.now
    FROM wrong, clock
    WHERE alerts.kind = wrong.kind AND alerts.subject = wrong.subject AND alerts.raised_at IS NULL
    AND alerts.noticed_at <= clock.now - cast(:patience AS interval)
    RETURNING alerts.kind, alerts.subject
),
ended AS (
    DELETE FROM alerts
    WHERE NOT EXISTS (SELECT FROM wrong WHERE wrong.kind = alerts.kind AND wrong.subject = alerts.subject)
    RETURNING kind, subject, raised_at
)
SELECT clock.now, changed.kind, changed.subject, changed.raised
FROM clock LEFT JOIN (
    SELECT kind, subject, TRUE AS raised FROM raised
    UNION ALL
    SELECT kind, subject, FALSE FROM ended WHERE raised_at IS NOT NULL
) AS changed ON TRUE
