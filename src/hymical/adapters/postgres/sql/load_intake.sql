-- One look for a whole batch of posts: the forms, their destinations, and the time that all of them are received at.
SELECT
    coalesce(cast(:now AS timestamptz), clock_timestamp()) AS now,
    forms.id AS form_id,
    forms.name,
    forms.is_active,
    forms.redirect_url,
    forms.allowed_origins,
    forms.honeypot_field,
    forms.duplicate_window,
    forms.limits,
    forms.created_at,
    destinations.id AS destination_id,
    destinations.url,
    destinations.state AS destination_state,
    destinations.secrets,
    destinations.headers,
    destinations.max_in_flight,
    destinations.created_at AS destination_created_at
FROM (SELECT 1) AS once
LEFT JOIN forms ON forms.id = ANY (cast(:form_ids AS text[]))
LEFT JOIN destinations ON destinations.form_id = forms.id AND destinations.deleted_at IS NULL
ORDER BY forms.id, destinations.id
