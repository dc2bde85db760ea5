-- One statement for a whole batch: a statement per row is what makes inserting slow.
INSERT INTO submissions (id, form_id, received_at, fields, is_spam, fingerprint, idempotency_key, duplicate_key)
SELECT id, form_id, received_at, cast(fields AS json), is_spam, fingerprint, idempotency_key, duplicate_key
FROM unnest(
    cast(:ids AS text[]), cast(:form_ids AS text[]), cast(:received_ats AS timestamptz[]), cast(:fields AS text[]),
    cast(:are_spam AS boolean[]), cast(:fingerprints AS bytea[]), cast(:idempotency_keys AS text[]),
    cast(:duplicate_keys AS bytea[])
) AS batch (id, form_id, received_at, fields, is_spam, fingerprint, idempotency_key, duplicate_key)
