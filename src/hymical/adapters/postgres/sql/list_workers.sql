-- Whether a worker lives is judged by the clock that it reported with.
SELECT
    id, host, pid, version, kind, in_flight, queues, started_at, last_seen_at,
    last_seen_at >= coalesce(cast(:now AS timestamptz), clock_timestamp()) - cast(:live_within AS interval) AS live
FROM workers
ORDER BY started_at DESC, id DESC
