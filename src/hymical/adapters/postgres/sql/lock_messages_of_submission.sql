-- Whoever sends one of them again shares its lock: the withdrawal, which begins after this, sees what they have done.
SELECT id FROM messages WHERE submission_id = :submission_id ORDER BY id FOR NO KEY UPDATE
