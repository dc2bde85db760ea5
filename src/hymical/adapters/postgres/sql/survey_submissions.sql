-- Most rows of a form have the same names: only what differs is sent, and no value at all.
WITH looked_at AS MATERIALIZED (
    SELECT
        id, form_id, received_at,
        CASE WHEN is_spam = cast(:spam AS boolean) THEN ARRAY(SELECT json_object_keys(fields)) END AS names,
        row_number() OVER (ORDER BY form_id, received_at, id) AS nth
    FROM submissions
    WHERE
        (form_id, received_at, id) > (:behind_form, cast(:behind_at AS timestamptz), :behind_id)
        AND form_id <= :last_form
        AND received_at > cast(:received_after AS timestamptz)
        AND received_at < cast(:received_before AS timestamptz)
    ORDER BY form_id, received_at, id
    LIMIT :looks
)
SELECT names, count(*) AS wanted, min(nth) AS nth, NULL AS form_id, NULL AS received_at, NULL AS id
FROM looked_at
WHERE names IS NOT NULL
GROUP BY names
UNION ALL
SELECT NULL, 0, nth, form_id, received_at, id
FROM looked_at
WHERE nth = :looks
ORDER BY nth
