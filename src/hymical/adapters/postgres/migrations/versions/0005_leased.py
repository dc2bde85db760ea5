"""What is leased has an index that nothing else can be answered from, nor can its count be from another one.

Two indexes had the same condition. With statistics from beside a long transaction PostgreSQL counted what is in
flight from the other one, and went through all that vacuum could not remove.
"""

from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

# Each call sees what is committed by then: what is settled while a claim waits is not taken off twice.
_IN_FLIGHT = """
CREATE FUNCTION in_flight(
    destination text,
    since timestamptz,
    making_room uuid[],
    OUT number bigint,
    OUT oldest timestamptz,
    OUT seen_at timestamptz
) LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    seen_at := clock_timestamp();
    SELECT count(*) FILTER (WHERE lease_token <> ALL (making_room)), min(lease_since) INTO number, oldest
    FROM deliveries
    WHERE NOT ready AND destination_id = destination AND lease_since >= since;
END
$$
"""
_IN_FLIGHT_BEFORE = """
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


def upgrade() -> None:
    op.execute("DROP FUNCTION in_flight")
    op.drop_index("deliveries_unready", "deliveries")
    op.create_index(
        "deliveries_leased",
        "deliveries",
        ["destination_id", "lease_since"],
        postgresql_where="lease_since IS NOT NULL AND NOT ready",
    )
    op.execute(_IN_FLIGHT)


def downgrade() -> None:
    op.execute("DROP FUNCTION in_flight")
    op.drop_index("deliveries_leased", "deliveries")
    op.create_index(
        "deliveries_unready",
        "deliveries",
        ["destination_id", "lease_since"],
        postgresql_where="due_at IS NOT NULL AND NOT ready",
    )
    op.execute(_IN_FLIGHT_BEFORE)
