-- One range of the index by form and time, so that each call reads on where the last one stopped, without a sort.
SELECT id, form_id, received_at, is_spam, fields, nth
FROM (
    SELECT
        id, form_id, received_at, is_spam, CASE WHEN is_spam = cast(:spam AS boolean) THEN fields END AS fields,
        row_number() OVER places AS nth,
        -- as stored, so that nothing has to be unpacked to be measured; the row itself does not count yet
        coalesce(sum(CASE WHEN is_spam = cast(:spam AS boolean) THEN pg_column_size(fields) ELSE 0 END)
            OVER (places ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS size_before
    FROM (
        SELECT id, form_id, received_at, is_spam, fields
        FROM submissions
        WHERE
            (form_id, received_at, id) > (:behind_form, cast(:behind_at AS timestamptz), :behind_id)
            AND form_id <= :last_form
            AND received_at > cast(:received_after AS timestamptz)
            AND received_at < cast(:received_before AS timestamptz)
        ORDER BY form_id, received_at, id
        LIMIT :looks
    ) AS looked_at
    WINDOW places AS (ORDER BY form_id, received_at, id)
) AS measured
WHERE size_before < cast(:size AS bigint)
ORDER BY nth
