"""PostgreSQL 14 and newer, as the database and as the queue."""
