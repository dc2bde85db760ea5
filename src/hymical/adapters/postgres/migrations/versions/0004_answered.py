"""What a worker knows to be answered is not in flight any more, though it is not settled yet."""

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

# As before, each call sees what is committed by then: what is settled while a claim waits is not taken off twice.
_IN_FLIGHT = """
CREATE FUNCTION in_flight(
    destination text,
    since timestamptz,
    answered uuid[],
    OUT number bigint,
    OUT oldest timestamptz,
    OUT seen_at timestamptz
) LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    seen_at := clock_timestamp();
    SELECT count(*) FILTER (WHERE lease_token <> ALL (answered)), min(lease_since) INTO number, oldest FROM deliveries
    WHERE due_at IS NOT NULL AND NOT ready AND destination_id = destination AND lease_since >= since;
END
$$
"""
_IN_FLIGHT_BEFORE = """
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
    op.execute("DROP FUNCTION in_flight")
    op.execute(_IN_FLIGHT)


def downgrade() -> None:
    op.execute("DROP FUNCTION in_flight")
    op.execute(_IN_FLIGHT_BEFORE)
