"""Schedules with their ledger of ticks, the presence of schedulers, and alerts."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def _id() -> sa.String:
    return sa.String(64, collation="C")


def _instant() -> sa.DateTime:
    return sa.DateTime(timezone=True)


def upgrade() -> None:
    op.create_table(
        "schedules",
        sa.Column("name", _id(), nullable=False),
        sa.Column("since", _instant(), nullable=False),
        sa.Column("paused_at", _instant(), nullable=True),
        sa.PrimaryKeyConstraint("name", name="schedules_pkey"),
    )
    op.create_table(
        "ticks",
        sa.Column("schedule", _id(), nullable=False),
        sa.Column("due_at", _instant(), nullable=False),
        sa.Column("job_id", _id(), nullable=False),
        sa.Column("enqueued_at", _instant(), nullable=False),
        sa.PrimaryKeyConstraint("schedule", "due_at", name="ticks_pkey"),
        sa.ForeignKeyConstraint(
            ["schedule"], ["schedules.name"], name="ticks_schedule_fkey", ondelete="CASCADE"
        ),
    )
    op.create_table(
        "alerts",
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("subject", _id(), nullable=False),
        sa.Column("noticed_at", _instant(), nullable=False),
        sa.Column("raised_at", _instant(), nullable=True),
        sa.PrimaryKeyConstraint("kind", "subject", name="alerts_pkey"),
    )
    op.add_column("workers", sa.Column("kind", sa.Text, nullable=False, server_default="worker"))


def downgrade() -> None:
    op.drop_column("workers", "kind")
    for table in ("alerts", "ticks", "schedules"):
        op.drop_table(table)
