"""Jobs with their progress, the queues that are paused, and the files that exports write."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def _id() -> sa.String:
    return sa.String(64, collation="C")


def _instant() -> sa.DateTime:
    return sa.DateTime(timezone=True)


def upgrade() -> None:
    op.create_table(
        "jobs",
        sa.Column("id", _id(), nullable=False),
        sa.Column("queue", _id(), nullable=False),
        sa.Column("type", _id(), nullable=False),
        sa.Column("version", sa.SmallInteger, nullable=False),
        sa.Column("payload", postgresql.JSON, nullable=False),
        sa.Column("priority", sa.SmallInteger, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("run_at", _instant(), nullable=False),
        sa.Column("claim_count", sa.Integer, nullable=False),
        sa.Column("retry_count", sa.Integer, nullable=False),
        sa.Column("max_retries", sa.Integer, nullable=False),
        sa.Column("lost_in_a_row", sa.SmallInteger, nullable=False),
        sa.Column("unique_key", sa.Text, nullable=True),
        sa.Column("lease_token", postgresql.UUID(as_uuid=True), nullable=True),
        sa.Column("lease_until", _instant(), nullable=True),
        sa.Column("question", postgresql.JSON, nullable=True),
        sa.Column("answer_by", _instant(), nullable=True),
        sa.Column("answers", postgresql.JSONB, nullable=True),
        sa.Column("checkpoint", postgresql.JSON, nullable=True),
        sa.Column("event_count", sa.Integer, nullable=False),
        sa.Column("result", postgresql.JSON, nullable=True),
        sa.Column("failure_reason", sa.Text, nullable=True),
        sa.Column("error", sa.Text, nullable=True),
        sa.Column("created_at", _instant(), nullable=False),
        sa.Column("started_at", _instant(), nullable=True),
        sa.Column("finished_at", _instant(), nullable=True),
        sa.PrimaryKeyConstraint("id", name="jobs_pkey"),
        sa.CheckConstraint(
            "state IN ('pending', 'processing', 'paused', 'completed', 'failed', 'cancelled')",
            name=op.f("jobs_state_known"),
        ),
        sa.CheckConstraint("priority BETWEEN 1 AND 4", name=op.f("jobs_priority_known")),
        sa.CheckConstraint(
            "(state = 'processing') = (lease_until IS NOT NULL)", name=op.f("jobs_leased_while_processing")
        ),
        sa.CheckConstraint(
            "(state = 'paused') = (question IS NOT NULL)", name=op.f("jobs_question_while_paused")
        ),
        sa.CheckConstraint(
            "(state IN ('completed', 'failed', 'cancelled')) = (finished_at IS NOT NULL)",
            name=op.f("jobs_finished_at_end"),
        ),
        sa.CheckConstraint(
            "(state = 'failed') = (failure_reason IS NOT NULL)", name=op.f("jobs_failed_with_reason")
        ),
    )
    op.create_index(
        "jobs_state",
        "jobs",
        ["state", "id"],
        postgresql_where=sa.text("state IN ('paused', 'failed', 'cancelled')"),
    )
    op.create_index(
        "jobs_pending",
        "jobs",
        ["queue", "priority", "run_at", "id"],
        postgresql_where=sa.text("state = 'pending'"),
    )
    op.create_index(
        "jobs_leased", "jobs", ["queue", "lease_until"], postgresql_where=sa.text("state = 'processing'")
    )
    op.create_index(
        "jobs_answer_by", "jobs", ["queue", "answer_by"], postgresql_where=sa.text("answer_by IS NOT NULL")
    )
    op.create_index(
        "jobs_unique_key",
        "jobs",
        ["type", "unique_key"],
        unique=True,
        postgresql_where=sa.text("unique_key IS NOT NULL AND state IN ('pending', 'processing', 'paused')"),
    )
    op.create_table(
        "job_events",
        sa.Column("job_id", _id(), nullable=False),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("at", _instant(), nullable=False),
        sa.Column("step", sa.Text, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("message", postgresql.JSON, nullable=True),
        sa.PrimaryKeyConstraint("job_id", "number", name="job_events_pkey"),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="job_events_job_id_fkey", ondelete="CASCADE"),
    )
    op.create_table(
        "paused_queues",
        sa.Column("queue", _id(), nullable=False),
        sa.Column("paused_at", _instant(), nullable=False),
        sa.PrimaryKeyConstraint("queue", name="paused_queues_pkey"),
    )
    op.add_column(
        "workers",
        sa.Column("queues", postgresql.ARRAY(sa.Text), nullable=False, server_default="{}"),
    )
    op.create_table(
        "exports",
        sa.Column("job_id", _id(), nullable=False),
        sa.Column("form_id", _id(), nullable=False),
        sa.Column("received_after", _instant(), nullable=True),
        sa.Column("reached_at", _instant(), nullable=True),
        sa.Column("reached_id", _id(), nullable=True),
        sa.Column("size", sa.BigInteger, nullable=False),
        sa.Column("chunks", sa.Integer, nullable=False),
        sa.Column("complete", sa.Boolean, nullable=False),
        sa.Column("expires_at", _instant(), nullable=False),
        sa.Column("withdrawn", sa.Text, nullable=True),
        sa.PrimaryKeyConstraint("job_id", name="exports_pkey"),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="exports_job_id_fkey", ondelete="CASCADE"),
        sa.CheckConstraint("withdrawn IN ('erased', 'expired')", name=op.f("exports_withdrawn_known")),
    )
    op.create_index("exports_form_id", "exports", ["form_id"], postgresql_where=sa.text("withdrawn IS NULL"))
    op.create_index(
        "exports_expires_at", "exports", ["expires_at"], postgresql_where=sa.text("withdrawn IS NULL")
    )
    op.create_table(
        "export_chunks",
        sa.Column("job_id", _id(), nullable=False),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("job_id", "number", name="export_chunks_pkey"),
        sa.ForeignKeyConstraint(
            ["job_id"], ["exports.job_id"], name="export_chunks_job_id_fkey", ondelete="CASCADE"
        ),
    )
    op.execute("ALTER TABLE export_chunks ALTER COLUMN body SET STORAGE EXTERNAL")


def downgrade() -> None:
    op.drop_column("workers", "queues")
    for table in ("export_chunks", "exports", "paused_queues", "job_events", "jobs"):
        op.drop_table(table)
