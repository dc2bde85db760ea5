"""Sending much at once: when a person is asked first, how fast it goes, and where it goes on after a break."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from hymical.domain.deliveries import Reason
from hymical.domain.forms import Submission
from hymical.domain.ids import DestinationId, FormId, SubmissionId
from hymical.domain.instants import rfc3339
from hymical.domain.jobs import Answer, Json, Question

BATCH = 500
"""How many are looked at in one transaction: few enough that nobody waits long for what it locks."""

MOST_WAITING = 1_000
"""With more than this due and unsent at its destinations a job adds nothing.

What comes in meanwhile waits behind it, for a second at the pace of a modest worker.
"""

PAUSE = timedelta(seconds=2)
"""How long it waits then; a worker of modest size sends as many in that time."""

COUNTED_AT_MOST = 100_000
"""What is asked of a person needs no exact number beyond this, and counting on takes its time."""

CONSENT = "send"
YES, NO = "yes", "no"

SETTLED_AFTER = timedelta(seconds=20)
"""How old a destination is when every post that was accepted without knowing of it is stored.

The database ends a transaction that stands still after 15 seconds.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedDeliveries:
    """Which failed deliveries are meant; both instants are left out, and None leaves a field open."""

    form_id: FormId | None = None
    destination_id: DestinationId | None = None
    submission_id: SubmissionId | None = None
    reason: Reason | None = None
    failed_after: datetime | None = None
    failed_before: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PastSubmissions:
    """The submissions of a destination's form that are no spam; both instants are left out."""

    destination_id: DestinationId
    received_after: datetime | None = None
    received_before: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """How many deliveries are to be sent, to how many destinations; counted up to `COUNTED_AT_MOST`."""

    deliveries: int
    destinations: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What one batch came to: how many are on their way, and how many are not, by the reason.

    `last` is the place of the last one that was looked at, in the order of the walk; `more` says that others may come
    behind it.
    """

    last: str
    sent: int
    skipped: Mapping[str, int]
    more: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """How far a job has come: everything up to the place `after` is dealt with, out of what was there `before`."""

    before: datetime
    after: str = ""
    sent: int = 0
    skipped: Mapping[str, int] = field(default_factory=dict)

    def plus(self, step: Step) -> "Tally":
        return Tally(
            before=self.before,
            after=max(self.after, step.last),
            sent=self.sent + step.sent,
            skipped=dict(Counter(self.skipped) + Counter(step.skipped)),
        )

    def as_checkpoint(self) -> Json:
        return {"before": self.before.isoformat(), "after": self.after, **self.counts()}

    def counts(self) -> dict[str, object]:
        return {"sent": self.sent, "skipped": dict(self.skipped)}

    @classmethod
    def of_checkpoint(cls, saved: Json) -> "Tally":
        before, after, sent, skipped = (saved[name] for name in ("before", "after", "sent", "skipped"))
        assert isinstance(before, str)  # noqa: S101  as it was saved
        assert isinstance(after, str)  # noqa: S101
        assert isinstance(sent, int)  # noqa: S101
        assert isinstance(skipped, Mapping)  # noqa: S101
        return cls(before=datetime.fromisoformat(before), after=after, sent=sent, skipped=dict(skipped))


def start(now: datetime, until: datetime | None) -> Tally:
    """A job takes what was there when it began, so that it ends, whatever comes or fails again meanwhile."""
    return Tally(before=now if until is None else min(now, until))


def place_of(submission: Submission) -> str:
    """Where a submission stands in the order of a back-fill; places compare as those of the submissions do."""
    return f"{rfc3339(submission.received_at)} {submission.id}"


def must_count(tally: Tally, answer: Answer | None, *, ask_above: int) -> bool:
    """Whether to see how many are left before the next batch: at the start, and when it may cross the threshold."""
    return answer is None and (not tally.after or tally.sent + BATCH > ask_above)


def must_ask(tally: Tally, left: Extent, *, ask_above: int) -> bool:
    """Whether a person is to say yes before any more is sent."""
    return left.deliveries > 0 and tally.sent + left.deliveries > ask_above


def declined(answer: Answer | None) -> bool:
    return answer is not None and answer.text == NO


def wait_for_room(waiting: int) -> timedelta | None:
    """How long to wait before the next batch while `waiting` are due and unsent; None for not at all."""
    return PAUSE if waiting > MOST_WAITING else None


def wait_until_settled(created_at: datetime, now: datetime) -> timedelta | None:
    """How long to wait before the past of a new destination is complete; None for not at all."""
    left = created_at + SETTLED_AFTER - now
    return left if left > timedelta(0) else None


def consent(verb: str, noun: str, left: Extent) -> Question:
    """`verb` such as Replay, `noun` such as delivery or past submission, in the plural."""
    counted = left.deliveries
    number = f"more than {COUNTED_AT_MOST:,}" if counted > COUNTED_AT_MOST else f"{counted:,}"
    where = "1 destination" if left.destinations == 1 else f"{left.destinations:,} destinations"
    return Question(key=CONSENT, text=f"{verb} {number} {noun} to {where}?", choices=(YES, NO))
