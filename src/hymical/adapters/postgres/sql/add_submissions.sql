-- One statement for a whole batch: a statement per row is what makes inserting slow.
INSERT INTO submissions (id, form_id, received_at, fields)
SELECT id, form_id, received_at, cast(fields AS json)
FROM unnest(
    cast(:ids AS text[]), cast(:form_ids AS text[]), cast(:received_ats AS timestamptz[]), cast(:fields AS text[])
) AS batch (id, form_id, received_at, fields)
