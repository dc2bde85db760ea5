-- What kept posts of a batch out, by the indexes that did: two look-ups for each.
SELECT batch.id, earlier.id AS earlier_id, earlier.received_at, earlier.fields, earlier.fingerprint
FROM unnest(
    cast(:ids AS text[]), cast(:form_ids AS text[]), cast(:idempotency_keys AS text[]), cast(:duplicate_keys AS bytea[])
) AS batch (id, form_id, idempotency_key, duplicate_key)
CROSS JOIN LATERAL (
    SELECT submissions.* FROM submissions
    WHERE batch.idempotency_key IS NOT NULL
    AND submissions.form_id = batch.form_id AND submissions.idempotency_key = batch.idempotency_key
    UNION ALL
    SELECT submissions.* FROM submissions
    WHERE batch.duplicate_key IS NOT NULL AND submissions.duplicate_key = batch.duplicate_key
    LIMIT 1
) AS earlier
