"""The tables, for migrations and for plain reads; queue statements are in `sql/`."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    ForeignKey,
    Index,
    Integer,
    Interval,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    SmallInteger,
    String,
    Table,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSON, JSONB, UUID

metadata = MetaData(
    naming_convention={
        "pk": "%(table_name)s_pkey",
        "fk": "%(table_name)s_%(column_0_name)s_fkey",
        "uq": "%(table_name)s_%(column_0_name)s_key",
        "ck": "%(table_name)s_%(constraint_name)s",
    }
)


def _id() -> String:
    # ids are compared by their bytes: their order is time's, whatever the database's locale
    return String(64, collation="C")


def _instant() -> DateTime:
    return DateTime(timezone=True)


forms = Table(
    "forms",
    metadata,
    Column("id", _id(), primary_key=True),
    Column("name", Text, nullable=False),
    Column("is_active", Boolean, nullable=False),
    Column("redirect_url", Text, nullable=True),
    Column("allowed_origins", ARRAY(Text), nullable=False),
    Column("honeypot_field", Text, nullable=True),
    Column("duplicate_window", Interval, nullable=True),
    # those that it sets, by the names of the API
    Column("limits", JSONB, nullable=False),
    Column("created_at", _instant(), nullable=False),
)

destinations = Table(
    "destinations",
    metadata,
    Column("id", _id(), primary_key=True),
    # none for the operator's, which events go to
    Column("form_id", _id(), ForeignKey("forms.id"), nullable=True),
    Column("url", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("secrets", JSONB, nullable=False),
    Column("headers", JSONB, nullable=False),
    Column("max_in_flight", Integer, nullable=False),
    Column("created_at", _instant(), nullable=False),
    # a deleted one stays for the history of its deliveries
    Column("deleted_at", _instant(), nullable=True),
    CheckConstraint("state IN ('active', 'paused', 'disabled')", name="state_known"),
    CheckConstraint("max_in_flight > 0", name="max_in_flight_positive"),
    Index("destinations_form_id", "form_id"),
)

# only of those that fail at present: a destination that does well costs nothing here
destination_trouble = Table(
    "destination_trouble",
    metadata,
    Column("destination_id", _id(), ForeignKey("destinations.id"), primary_key=True),
    Column("failing_since", _instant(), nullable=False),
    Column("failures_in_a_row", Integer, nullable=False),
    Column("warned", Boolean, nullable=False),
    Column("openings", Integer, nullable=False),
    Column("held_until", _instant(), nullable=True),
)

submissions = Table(
    "submissions",
    metadata,
    Column("id", _id(), primary_key=True),
    Column("form_id", _id(), ForeignKey("forms.id"), nullable=False),
    Column("received_at", _instant(), nullable=False),
    # json, not jsonb: it keeps the text, and with it the order of names
    Column("fields", JSON, nullable=False),
    Column("is_spam", Boolean, nullable=False),
    Column("fingerprint", LargeBinary, nullable=False),
    Column("idempotency_key", Text, nullable=True),
    Column("duplicate_key", LargeBinary, nullable=True),
    Index("submissions_received_at", "received_at", "id"),
    Index("submissions_form_id", "form_id", "received_at", "id"),
    Index(
        "submissions_idempotency_key",
        "form_id",
        "idempotency_key",
        unique=True,
        postgresql_where=text("idempotency_key IS NOT NULL"),
    ),
    # given up once its form's window is over
    Index(
        "submissions_duplicate_key",
        "duplicate_key",
        unique=True,
        postgresql_where=text("duplicate_key IS NOT NULL"),
    ),
)

messages = Table(
    "messages",
    metadata,
    Column("id", _id(), primary_key=True),
    Column("type", Text, nullable=False),
    # no foreign key: it stays in the history when the submission is erased
    Column("submission_id", _id(), nullable=True),
    Column("form_id", _id(), ForeignKey("forms.id"), nullable=True),
    Column("body", LargeBinary, nullable=False),
    Index("messages_submission_id", "submission_id"),
)

deliveries = Table(
    "deliveries",
    metadata,
    Column("id", _id(), primary_key=True),
    Column("message_id", _id(), ForeignKey("messages.id"), nullable=False),
    Column("destination_id", _id(), ForeignKey("destinations.id"), nullable=False),
    Column("state", Text, nullable=False),
    Column("attempt_count", Integer, nullable=False),
    Column("cycle_attempt_count", Integer, nullable=False),
    Column("lost_in_a_row", SmallInteger, nullable=False),
    Column("due_at", _instant(), nullable=True),
    Column("ready", Boolean, nullable=False),
    Column("lease_token", UUID(as_uuid=True), nullable=True),
    Column("lease_since", _instant(), nullable=True),
    Column("created_at", _instant(), nullable=False),
    Column("completed_at", _instant(), nullable=True),
    Column("failure_reason", Text, nullable=True),
    CheckConstraint("state IN ('pending', 'processing', 'delivered', 'failed')", name="state_known"),
    CheckConstraint("(state IN ('pending', 'processing')) = (due_at IS NOT NULL)", name="due_while_open"),
    CheckConstraint(
        "(state IN ('delivered', 'failed')) = (completed_at IS NOT NULL)", name="completed_at_end"
    ),
    CheckConstraint(
        "(state = 'processing') = (lease_token IS NOT NULL) AND (state = 'processing') = (lease_since IS NOT NULL)",
        name="leased_while_processing",
    ),
    CheckConstraint("(state = 'failed') = (failure_reason IS NOT NULL)", name="failed_with_reason"),
    CheckConstraint("NOT ready OR due_at IS NOT NULL", name="ready_while_open"),
    # exactly the order of the claim within a destination, and only what may be claimed now
    Index("deliveries_ready", "destination_id", "due_at", "id", postgresql_where=text("ready")),
    # what comes due later: retries, and the ends of leases
    Index("deliveries_later", "due_at", "id", postgresql_where=text("due_at IS NOT NULL AND NOT ready")),
    # what a destination has in flight, the oldest lease first. Its condition must not be that of the index above:
    # either would do for the other's queries, and which is taken would depend on statistics
    Index(
        "deliveries_leased",
        "destination_id",
        "lease_since",
        postgresql_where=text("lease_since IS NOT NULL AND NOT ready"),
    ),
    Index("deliveries_destination_id", "destination_id", "id"),
    # the few that people look for, and replay, among the many
    Index("deliveries_failed", "id", postgresql_where=text("state = 'failed'")),
    Index("deliveries_message_id", "message_id"),
)

attempts = Table(
    "attempts",
    metadata,
    Column("delivery_id", _id(), ForeignKey("deliveries.id", ondelete="CASCADE"), nullable=False),
    Column("number", Integer, nullable=False),
    Column("started_at", _instant(), nullable=False),
    Column("duration_ms", BigInteger, nullable=True),
    Column("outcome", Text, nullable=False),
    Column("response_status", SmallInteger, nullable=True),
    Column("error", Text, nullable=True),
    Column("response_excerpt", Text, nullable=True),
    Column("truncated", Boolean, nullable=False),
    Column("remote_address", Text, nullable=True),
    Column("late", Boolean, nullable=False),
    PrimaryKeyConstraint("delivery_id", "number"),
)

workers = Table(
    "workers",
    metadata,
    Column("id", _id(), primary_key=True),
    Column("host", Text, nullable=False),
    Column("pid", Integer, nullable=False),
    Column("version", Text, nullable=False),
    Column("kind", Text, nullable=False, server_default="worker"),
    Column("started_at", _instant(), nullable=False),
    Column("last_seen_at", _instant(), nullable=False),
    Column("in_flight", Integer, nullable=False),
    # of jobs; none for one that delivers
    Column("queues", ARRAY(Text), nullable=False, server_default="{}"),
)

keys = Table(
    "keys",
    metadata,
    Column("id", _id(), primary_key=True),
    Column("name", Text, nullable=False),
    Column("digest", LargeBinary, nullable=False),
    Column("created_at", _instant(), nullable=False),
    Column("expires_at", _instant(), nullable=True),
    Column("revoked_at", _instant(), nullable=True),
    # how many days before it expires its owner was told so last
    Column("warned_days", SmallInteger, nullable=True),
    UniqueConstraint("digest"),
    CheckConstraint("expires_at > created_at", name="expires_later"),
)

# a bucket that is full needs no row
rate_limits = Table(
    "rate_limits",
    metadata,
    Column("key", LargeBinary, primary_key=True),
    # when it is full again
    Column("tat", _instant(), nullable=False),
    # how many of the last batch it allowed, for the statement that asked to read
    Column("granted", BigInteger, nullable=False),
    # rows are rewritten all the time; with room on their page no index has to hear of it
    postgresql_with={"fillfactor": "70"},
    # a crash may forget what was spent, and no post waits for it to reach the disk
    prefixes=["UNLOGGED"],
)

# one row, made by the migration
installation = Table(
    "installation",
    metadata,
    Column("single", Boolean, primary_key=True),
    Column("source_key", LargeBinary, nullable=False),
    CheckConstraint("single", name="one_row"),
    CheckConstraint("octet_length(source_key) = 32", name="source_key_length"),
)

jobs = Table(
    "jobs",
    metadata,
    Column("id", _id(), primary_key=True),
    Column("queue", _id(), nullable=False),
    Column("type", _id(), nullable=False),
    Column("version", SmallInteger, nullable=False),
    Column("payload", JSON, nullable=False),
    Column("priority", SmallInteger, nullable=False),
    Column("state", Text, nullable=False),
    Column("run_at", _instant(), nullable=False),
    Column("claim_count", Integer, nullable=False),
    Column("retry_count", Integer, nullable=False),
    Column("max_retries", Integer, nullable=False),
    Column("lost_in_a_row", SmallInteger, nullable=False),
    Column("unique_key", Text, nullable=True),
    # stays when the lease ends, so that a settlement that is repeated is known again
    Column("lease_token", UUID(as_uuid=True), nullable=True),
    Column("lease_until", _instant(), nullable=True),
    Column("question", JSON, nullable=True),
    Column("answer_by", _instant(), nullable=True),
    Column("answers", JSONB, nullable=True),
    Column("checkpoint", JSON, nullable=True),
    Column("event_count", Integer, nullable=False),
    Column("result", JSON, nullable=True),
    Column("failure_reason", Text, nullable=True),
    Column("error", Text, nullable=True),
    Column("created_at", _instant(), nullable=False),
    Column("started_at", _instant(), nullable=True),
    Column("finished_at", _instant(), nullable=True),
    CheckConstraint(
        "state IN ('pending', 'processing', 'paused', 'completed', 'failed', 'cancelled')", name="state_known"
    ),
    CheckConstraint("priority BETWEEN 1 AND 4", name="priority_known"),
    CheckConstraint("(state = 'processing') = (lease_until IS NOT NULL)", name="leased_while_processing"),
    CheckConstraint("(state = 'paused') = (question IS NOT NULL)", name="question_while_paused"),
    CheckConstraint(
        "(state IN ('completed', 'failed', 'cancelled')) = (finished_at IS NOT NULL)", name="finished_at_end"
    ),
    CheckConstraint("(state = 'failed') = (failure_reason IS NOT NULL)", name="failed_with_reason"),
    # the few that people look for among the many
    Index("jobs_state", "state", "id", postgresql_where=text("state IN ('paused', 'failed', 'cancelled')")),
    # the order in which jobs are claimed
    Index(
        "jobs_pending",
        "queue",
        "priority",
        "run_at",
        "id",
        postgresql_where=text("state = 'pending'"),
    ),
    Index("jobs_leased", "queue", "lease_until", postgresql_where=text("state = 'processing'")),
    Index("jobs_answer_by", "queue", "answer_by", postgresql_where=text("answer_by IS NOT NULL")),
    Index(
        "jobs_unique_key",
        "type",
        "unique_key",
        unique=True,
        postgresql_where=text("unique_key IS NOT NULL AND state IN ('pending', 'processing', 'paused')"),
    ),
)

job_events = Table(
    "job_events",
    metadata,
    Column("job_id", _id(), ForeignKey("jobs.id", ondelete="CASCADE"), nullable=False),
    Column("number", Integer, nullable=False),
    Column("at", _instant(), nullable=False),
    Column("step", Text, nullable=False),
    Column("status", Text, nullable=False),
    Column("message", JSON, nullable=True),
    PrimaryKeyConstraint("job_id", "number"),
)

paused_queues = Table(
    "paused_queues",
    metadata,
    Column("queue", _id(), primary_key=True),
    Column("paused_at", _instant(), nullable=False),
)

schedules = Table(
    "schedules",
    metadata,
    Column("name", _id(), primary_key=True),
    # every tick up to it has been dealt with
    Column("since", _instant(), nullable=False),
    Column("paused_at", _instant(), nullable=True),
)

# the key is what makes a second tick impossible
ticks = Table(
    "ticks",
    metadata,
    Column("schedule", _id(), ForeignKey("schedules.name", ondelete="CASCADE"), nullable=False),
    Column("due_at", _instant(), nullable=False),
    # no foreign key: it outlives a job that is cleaned up
    Column("job_id", _id(), nullable=False),
    Column("enqueued_at", _instant(), nullable=False),
    PrimaryKeyConstraint("schedule", "due_at"),
)

alerts = Table(
    "alerts",
    metadata,
    Column("kind", Text, nullable=False),
    Column("subject", _id(), nullable=False),
    Column("noticed_at", _instant(), nullable=False),
    Column("raised_at", _instant(), nullable=True),
    PrimaryKeyConstraint("kind", "subject"),
)

exports = Table(
    "exports",
    metadata,
    Column("job_id", _id(), ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
    Column("form_id", _id(), nullable=False),
    # what it may hold was received later; what it does hold, until the one that it reached
    Column("received_after", _instant(), nullable=True),
    Column("reached_at", _instant(), nullable=True),
    Column("reached_id", _id(), nullable=True),
    Column("size", BigInteger, nullable=False),
    Column("chunks", Integer, nullable=False),
    Column("complete", Boolean, nullable=False),
    Column("expires_at", _instant(), nullable=False),
    Column("withdrawn", Text, nullable=True),
    CheckConstraint("withdrawn IN ('erased', 'expired')", name="withdrawn_known"),
    Index("exports_form_id", "form_id", postgresql_where=text("withdrawn IS NULL")),
    Index("exports_expires_at", "expires_at", postgresql_where=text("withdrawn IS NULL")),
)

export_chunks = Table(
    "export_chunks",
    metadata,
    Column("job_id", _id(), ForeignKey("exports.job_id", ondelete="CASCADE"), nullable=False),
    Column("number", Integer, nullable=False),
    # compressed already, which the migration tells the server
    Column("body", LargeBinary, nullable=False),
    PrimaryKeyConstraint("job_id", "number"),
)
