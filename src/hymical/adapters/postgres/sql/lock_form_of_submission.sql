-- Exports share this lock for each piece that they write; posts to the form do not mind it.
SELECT id FROM forms
WHERE id = (SELECT form_id FROM submissions WHERE id = :submission_id)
FOR NO KEY UPDATE
