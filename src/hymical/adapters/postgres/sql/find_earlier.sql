-- Two look-ups by index for each post of a batch; the window counts back from the time that the batch is received at.
SELECT batch.id, earlier.id AS earlier_id, earlier.received_at, earlier.fields, earlier.fingerprint
FROM unnest(
    cast(:ids AS text[]), cast(:form_ids AS text[]), cast(:idempotency_keys AS text[]),
    cast(:duplicate_keys AS bytea[]), cast(:received_ats AS timestamptz[])
) AS batch (id, form_id, idempotency_key, duplicate_key, received_at)
CROSS JOIN LATERAL (
    SELECT submissions.* FROM submissions
    WHERE batch.idempotency_key IS NOT NULL
    AND submissions.form_id = batch.form_id AND submissions.idempotency_key = batch.idempotency_key
    UNION ALL
    (
        SELECT submissions.* FROM submissions
        JOIN forms ON forms.id = submissions.form_id
        WHERE batch.duplicate_key IS NOT NULL AND submissions.duplicate_key = batch.duplicate_key
        AND submissions.received_at > batch.received_at - coalesce(forms.duplicate_window, cast(:window AS interval))
        ORDER BY submissions.received_at DESC
        LIMIT 1
    )
    LIMIT 1
) AS earlier
