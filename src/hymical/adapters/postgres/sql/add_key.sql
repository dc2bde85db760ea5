-- The database's clock says from when its time runs, so that a process whose clock is wrong makes no key that has expired.
INSERT INTO keys (id, name, digest, created_at, expires_at)
SELECT
    :id, :name, :digest, clock.now, coalesce(cast(:expires_at AS timestamptz), clock.now + cast(:expires_after AS interval))
FROM (SELECT coalesce(cast(:now AS timestamptz), clock_timestamp()) AS now) AS clock
RETURNING id, name, created_at, expires_at, revoked_at
