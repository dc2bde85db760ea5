-- By destination, along the index of the claim; one whose breaker has opened is sent to one by one, and has no pace.
SELECT count(*) AS waiting
FROM (
    SELECT
    FROM destinations
    CROSS JOIN LATERAL (
        SELECT FROM deliveries WHERE deliveries.destination_id = destinations.id AND deliveries.ready LIMIT :limit
    ) AS ready
    WHERE (cast(:destination_id AS text) IS NULL OR destinations.id = :destination_id)
    AND (cast(:form_id AS text) IS NULL OR destinations.form_id = :form_id)
    AND destinations.state = 'active' AND destinations.deleted_at IS NULL
    AND NOT EXISTS (
        SELECT FROM destination_trouble
        WHERE destination_trouble.destination_id = destinations.id AND destination_trouble.openings > 0
    )
    LIMIT :limit
) AS found
