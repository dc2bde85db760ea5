-- One row a worker, renewed in place; whoever reports also forgets those that are long gone.
WITH clock AS MATERIALIZED (
    SELECT coalesce(cast(:now AS timestamptz), clock_timestamp()) AS now
),
forgotten AS (
    DELETE FROM workers USING clock
    WHERE workers.last_seen_at < clock.now - cast(:forgotten_after AS interval) AND workers.id <> :id
)
INSERT INTO workers (id, host, pid, version, kind, started_at, last_seen_at, in_flight, queues)
SELECT :id, :host, :pid, :version, :kind, clock.now, clock.now, :in_flight, cast(:queues AS text[]) FROM clock
ON CONFLICT (id) DO UPDATE SET last_seen_at = excluded.last_seen_at, in_flight = excluded.in_flight
