-- Whoever answers waits here for a pause that is being committed, and then sees it.
SELECT jobs.state, jobs.question, jobs.answers FROM jobs WHERE jobs.id = :id FOR UPDATE
