"""Forms, destinations, submissions, messages, deliveries with their attempts, and keys."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def _id() -> sa.String:
    return sa.String(64, collation="C")


def _instant() -> sa.DateTime:
    return sa.DateTime(timezone=True)


# Each call sees what is committed by then, while the statement that calls it sees what was when it began: so that one
# statement can lock a destination, count, and take. Before `since` all leases are known to have ended.
_IN_FLIGHT = """
CREATE FUNCTION in_flight(
    destination text, since timestamptz, OUT number bigint, OUT oldest timestamptz, OUT seen_at timestamptz
) LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    seen_at := clock_timestamp();
    SELECT count(*), min(lease_since) INTO number, oldest FROM deliveries
    WHERE due_at IS NOT NULL AND NOT ready AND destination_id = destination AND lease_since >= since;
END
$$
"""


def upgrade() -> None:
    op.create_table(
        "forms",
        sa.Column("id", _id(), nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("is_active", sa.Boolean, nullable=False),
        sa.Column("redirect_url", sa.Text, nullable=True),
        sa.Column("allowed_origins", postgresql.ARRAY(sa.Text), nullable=False),
        sa.Column("honeypot_field", sa.Text, nullable=True),
        sa.Column("duplicate_window", sa.Interval, nullable=True),
        sa.Column("limits", postgresql.JSONB, nullable=False),
        sa.Column("created_at", _instant(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="forms_pkey"),
    )
    op.create_table(
        "destinations",
        sa.Column("id", _id(), nullable=False),
        sa.Column("form_id", _id(), nullable=True),
        sa.Column("url", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("secrets", postgresql.JSONB, nullable=False),
        sa.Column("headers", postgresql.JSONB, nullable=False),
        sa.Column("max_in_flight", sa.Integer, nullable=False),
        sa.Column("created_at", _instant(), nullable=False),
        sa.Column("deleted_at", _instant(), nullable=True),
        sa.PrimaryKeyConstraint("id", name="destinations_pkey"),
        sa.ForeignKeyConstraint(["form_id"], ["forms.id"], name="destinations_form_id_fkey"),
        sa.CheckConstraint(
            "state IN ('active', 'paused', 'disabled')", name=op.f("destinations_state_known")
        ),
        sa.CheckConstraint("max_in_flight > 0", name=op.f("destinations_max_in_flight_positive")),
    )
    op.create_index("destinations_form_id", "destinations", ["form_id"])
    op.create_table(
        "destination_trouble",
        sa.Column("destination_id", _id(), nullable=False),
        sa.Column("failing_since", _instant(), nullable=False),
        sa.Column("failures_in_a_row", sa.Integer, nullable=False),
        sa.Column("warned", sa.Boolean, nullable=False),
        sa.Column("openings", sa.Integer, nullable=False),
        sa.Column("held_until", _instant(), nullable=True),
        sa.PrimaryKeyConstraint("destination_id", name="destination_trouble_pkey"),
        sa.ForeignKeyConstraint(
            ["destination_id"], ["destinations.id"], name="destination_trouble_destination_id_fkey"
        ),
    )
    op.create_table(
        "submissions",
        sa.Column("id", _id(), nullable=False),
        sa.Column("form_id", _id(), nullable=False),
        sa.Column("received_at", _instant(), nullable=False),
        sa.Column("fields", postgresql.JSON, nullable=False),
        sa.Column("is_spam", sa.Boolean, nullable=False),
        sa.Column("fingerprint", sa.LargeBinary, nullable=False),
        sa.Column("idempotency_key", sa.Text, nullable=True),
        sa.Column("duplicate_key", sa.LargeBinary, nullable=True),
        sa.PrimaryKeyConstraint("id", name="submissions_pkey"),
        sa.ForeignKeyConstraint(["form_id"], ["forms.id"], name="submissions_form_id_fkey"),
    )
    op.create_index("submissions_received_at", "submissions", ["received_at", "id"])
    op.create_index("submissions_form_id", "submissions", ["form_id", "received_at", "id"])
    op.create_index(
        "submissions_idempotency_key",
        "submissions",
        ["form_id", "idempotency_key"],
        unique=True,
        postgresql_where=sa.text("idempotency_key IS NOT NULL"),
    )
    op.create_index(
        "submissions_duplicate_key",
        "submissions",
        ["duplicate_key"],
        unique=True,
        postgresql_where=sa.text("duplicate_key IS NOT NULL"),
    )
    op.create_table(
        "messages",
        sa.Column("id", _id(), nullable=False),
        sa.Column("type", sa.Text, nullable=False),
        sa.Column("submission_id", _id(), nullable=True),
        sa.Column("form_id", _id(), nullable=True),
        sa.Column("body", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("id", name="messages_pkey"),
        sa.ForeignKeyConstraint(["form_id"], ["forms.id"], name="messages_form_id_fkey"),
    )
    op.create_index("messages_submission_id", "messages", ["submission_id"])
    op.create_table(
        "deliveries",
        sa.Column("id", _id(), nullable=False),
        sa.Column("message_id", _id(), nullable=False),
        sa.Column("destination_id", _id(), nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("attempt_count", sa.Integer, nullable=False),
        sa.Column("cycle_attempt_count", sa.Integer, nullable=False),
        sa.Column("lost_in_a_row", sa.SmallInteger, nullable=False),
        sa.Column("due_at", _instant(), nullable=True),
        sa.Column("ready", sa.Boolean, nullable=False),
        sa.Column("lease_token", postgresql.UUID(as_uuid=True), nullable=True),
        sa.Column("lease_since", _instant(), nullable=True),
        sa.Column("created_at", _instant(), nullable=False),
        sa.Column("completed_at", _instant(), nullable=True),
        sa.Column("failure_reason", sa.Text, nullable=True),
        sa.PrimaryKeyConstraint("id", name="deliveries_pkey"),
        sa.ForeignKeyConstraint(["message_id"], ["messages.id"], name="deliveries_message_id_fkey"),
        sa.ForeignKeyConstraint(
            ["destination_id"], ["destinations.id"], name="deliveries_destination_id_fkey"
        ),
        sa.CheckConstraint(
            "state IN ('pending', 'processing', 'delivered', 'failed')", name=op.f("deliveries_state_known")
        ),
        sa.CheckConstraint(
            "(state IN ('pending', 'processing')) = (due_at IS NOT NULL)",
            name=op.f("deliveries_due_while_open"),
        ),
        sa.CheckConstraint(
            "(state IN ('delivered', 'failed')) = (completed_at IS NOT NULL)",
            name=op.f("deliveries_completed_at_end"),
        ),
        sa.CheckConstraint(
            "(state = 'processing') = (lease_token IS NOT NULL)"
            " AND (state = 'processing') = (lease_since IS NOT NULL)",
            name=op.f("deliveries_leased_while_processing"),
        ),
        sa.CheckConstraint(
            "(state = 'failed') = (failure_reason IS NOT NULL)", name=op.f("deliveries_failed_with_reason")
        ),
        sa.CheckConstraint("NOT ready OR due_at IS NOT NULL", name=op.f("deliveries_ready_while_open")),
    )
    op.create_index(
        "deliveries_ready",
        "deliveries",
        ["destination_id", "due_at", "id"],
        postgresql_where=sa.text("ready"),
    )
    op.create_index(
        "deliveries_later",
        "deliveries",
        ["due_at", "id"],
        postgresql_where=sa.text("due_at IS NOT NULL AND NOT ready"),
    )
    op.create_index(
        "deliveries_unready",
        "deliveries",
        ["destination_id", "lease_since"],
        postgresql_where=sa.text("due_at IS NOT NULL AND NOT ready"),
    )
    op.create_index("deliveries_destination_id", "deliveries", ["destination_id", "id"])
    op.create_index("deliveries_failed", "deliveries", ["id"], postgresql_where=sa.text("state = 'failed'"))
    op.create_index("deliveries_message_id", "deliveries", ["message_id"])
    op.execute(_IN_FLIGHT)
    op.create_table(
        "attempts",
        sa.Column("delivery_id", _id(), nullable=False),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("started_at", _instant(), nullable=False),
        sa.Column("duration_ms", sa.BigInteger, nullable=True),
        sa.Column("outcome", sa.Text, nullable=False),
        sa.Column("response_status", sa.SmallInteger, nullable=True),
        sa.Column("error", sa.Text, nullable=True),
        sa.Column("response_excerpt", sa.Text, nullable=True),
        sa.Column("truncated", sa.Boolean, nullable=False),
        sa.Column("remote_address", sa.Text, nullable=True),
        sa.Column("late", sa.Boolean, nullable=False),
        sa.PrimaryKeyConstraint("delivery_id", "number", name="attempts_pkey"),
        sa.ForeignKeyConstraint(
            ["delivery_id"], ["deliveries.id"], name="attempts_delivery_id_fkey", ondelete="CASCADE"
        ),
    )
    op.create_table(
        "workers",
        sa.Column("id", _id(), nullable=False),
        sa.Column("host", sa.Text, nullable=False),
        sa.Column("pid", sa.Integer, nullable=False),
        sa.Column("version", sa.Text, nullable=False),
        sa.Column("started_at", _instant(), nullable=False),
        sa.Column("last_seen_at", _instant(), nullable=False),
        sa.Column("in_flight", sa.Integer, nullable=False),
        sa.PrimaryKeyConstraint("id", name="workers_pkey"),
    )
    op.create_table(
        "keys",
        sa.Column("id", _id(), nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("digest", sa.LargeBinary, nullable=False),
        sa.Column("created_at", _instant(), nullable=False),
        sa.Column("expires_at", _instant(), nullable=True),
        sa.Column("revoked_at", _instant(), nullable=True),
        sa.Column("warned_days", sa.SmallInteger, nullable=True),
        sa.PrimaryKeyConstraint("id", name="keys_pkey"),
        sa.UniqueConstraint("digest", name="keys_digest_key"),
        sa.CheckConstraint("expires_at > created_at", name=op.f("keys_expires_later")),
    )
    op.create_table(
        "rate_limits",
        sa.Column("key", sa.LargeBinary, nullable=False),
        sa.Column("tat", _instant(), nullable=False),
        sa.Column("granted", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("key", name="rate_limits_pkey"),
        postgresql_with={"fillfactor": "70"},
        prefixes=["UNLOGGED"],
    )
    op.create_table(
        "installation",
        sa.Column("single", sa.Boolean, nullable=False),
        sa.Column("source_key", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("single", name="installation_pkey"),
        sa.CheckConstraint("single", name=op.f("installation_one_row")),
        sa.CheckConstraint("octet_length(source_key) = 32", name=op.f("installation_source_key_length")),
    )
    # two of them, for 6 bits of each are not random
    op.execute(
        "INSERT INTO installation (single, source_key) VALUES"
        " (TRUE, sha256(uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid())))"
    )


def downgrade() -> None:
    op.execute("DROP FUNCTION in_flight")
    for table in (
        "installation",
        "rate_limits",
        "keys",
        "workers",
        "attempts",
        "deliveries",
        "messages",
        "submissions",
        "destination_trouble",
        "destinations",
        "forms",
    ):
        op.drop_table(table)
