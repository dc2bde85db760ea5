-- A table that the search path does not lead to grants nothing.
SELECT format('%s on %s', granted.name, known.name) AS missing
FROM unnest(cast(:tables AS text[])) AS known (name)
CROSS JOIN unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) AS granted (name)
WHERE has_table_privilege(cast(to_regclass(known.name) AS oid), granted.name) IS NOT TRUE
ORDER BY known.name, granted.name
