"""Jobs: units of background work on named queues, and the state machine that each goes through.

pending ──claim──▶ processing ──▶ completed
   ▲                   │ ├──error──▶ pending again, later; after max_retries: failed
   ├──answer── paused ◀┘ (asks a human)
   └──retry by hand── failed          any of pending, processing, paused ──cancel──▶ cancelled
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import IntEnum, StrEnum
from typing import assert_never

from hymical.domain.errors import InvalidValue, UnknownJobType
from hymical.domain.ids import JobId
from hymical.domain.leases import JobLease
from hymical.domain.retries import backoff

Json = Mapping[str, object]
"""An object of JSON: what a payload, a checkpoint and a result are."""

MAX_LOST_IN_A_ROW = 5
"""A job whose worker was lost that often in a row ends, so that one that kills its worker cannot loop."""

LONGEST_ERROR = 2_000
LONGEST_ANSWER = LONGEST_QUESTION = 10_000
LONGEST_UNIQUE_KEY = 600
LONGEST_WAIT = timedelta(days=3_650)
LARGEST_JSON = 4_194_304
"""Bytes of a payload, a checkpoint or a result; what is larger belongs into a table of its own."""

_NAME = re.compile(r"[a-z][a-z0-9_.-]{0,62}")


def is_name(text: str) -> bool:
    """Whether a queue, a type or a question can be called that."""
    return _NAME.fullmatch(text) is not None


def check_text(field: str, text: str, *, longest: int) -> None:
    """Raises `InvalidValue` for one that is empty or too long, or that not every database can store."""
    if not text.strip() or len(text) > longest or _plain(text) != text:
        rule = f"must be a text of 1 to {longest} characters, without NUL and lone surrogates"
        raise InvalidValue(field, rule)


_JSON = json.JSONEncoder(allow_nan=False, ensure_ascii=False)


def check_json(field: str, value: object, *, largest: int = LARGEST_JSON) -> str:
    """An object of JSON, written.

    Raises:
        InvalidValue: it is none, or takes more than `largest` bytes in UTF-8.
    """
    if not isinstance(value, Mapping):
        raise InvalidValue(field, f"must be an object of JSON, not {type(value).__name__}")
    try:
        text = _JSON.encode(value)
        size = len(text.encode())
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidValue(field, f"must be JSON: {error}") from None
    if size > largest:
        raise InvalidValue(field, f"must be at most {largest} bytes of JSON, not {size}")
    return text


def _check_span(field: str, span: object) -> None:
    """Raises `InvalidValue`: whoever writes a job may not have types checked."""
    if not isinstance(span, timedelta):
        raise InvalidValue(field, f"must be a timedelta, not {span!r}")


def _check_wait(field: str, wait: timedelta) -> None:
    _check_span(field, wait)
    if wait > LONGEST_WAIT:
        raise InvalidValue(field, f"must be at most {LONGEST_WAIT.days} days")


class JobState(StrEnum):
    PENDING = "pending"
    PROCESSING = "processing"
    PAUSED = "paused"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


FINAL = frozenset({JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED})
"""States that end a job; of these only a failed one can be retried, by hand."""


class Priority(IntEnum):
    """Of the jobs that are due on one queue, those with the lower number start first."""

    URGENT = 1
    HIGH = 2
    NORMAL = 3
    LOW = 4


class JobFailure(StrEnum):
    """Why a job failed."""

    EXHAUSTED = "exhausted"
    GAVE_UP = "gave_up"
    UNKNOWN_TYPE = "unknown_type"
    INVALID_PAYLOAD = "invalid_payload"
    WORKER_LOST = "worker_lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What a job asks a person. No `choices`: any text will do.

    `key` names the question within its job; the answer is found under it. Once `deadline` has passed since the
    pause, `default` is the answer.

    Raises:
        InvalidValue: a deadline without a default, a default that is none of the choices, a text that cannot be
            stored, or a deadline in more than `LONGEST_WAIT`.
    """

    key: str
    text: str
    choices: tuple[str, ...] = ()
    deadline: timedelta | None = None
    default: str | None = None

    def __post_init__(self) -> None:
        if not is_name(self.key):
            raise InvalidValue("key", "must be a name of at most 63 of a-z, 0-9, _, . and -")
        if (self.deadline is None) != (self.default is None):
            raise InvalidValue("deadline", "needs a default answer, and a default answer needs a deadline")
        for field_, text in (("text", self.text), *(("choices", choice) for choice in self.choices)):
            check_text(field_, text, longest=LONGEST_QUESTION)
        if self.deadline is not None:
            _check_wait("deadline", self.deadline)
        if self.default is not None:
            self.check(self.default)

    def check(self, text: str) -> str:
        """The answer as it is to be stored. Raises `InvalidValue` for one that does not fit."""
        if self.choices and text not in self.choices:
            raise InvalidValue("answer", f"must be one of: {', '.join(self.choices)}")
        check_text("answer", text, longest=LONGEST_ANSWER)
        return text


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """`by` is the id of the key that was used, or `default` when the deadline passed."""

    text: str
    by: str
    at: datetime


BY_DEFAULT = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobType:
    """A kind of work, by name. `max_retries` and `timeout` of None mean the operator's default and no end.

    `version` is that of its payload; it is stored with each job.
    """

    name: str
    queue: str
    version: int = 1
    priority: Priority = Priority.NORMAL
    max_retries: int | None = None
    timeout: timedelta | None = None

    def __post_init__(self) -> None:
        for name in (self.name, self.queue):
            if not is_name(name):
                raise InvalidValue("name", f"{name!r} must be a name of at most 63 of a-z, 0-9, _, . and -")
        if self.timeout is not None:
            _check_span("timeout", self.timeout)
            if self.timeout <= timedelta(0):
                raise InvalidValue("timeout", "must be above zero")


@dataclass(frozen=True, slots=True, kw_only=True)
class NewJob:
    """A job to enqueue; `payload` is an object of JSON, written. `run_at` of None is at once, by the database.

    Of the jobs of one type that have not ended, no two have the same `unique_key`.
    """

    id: JobId
    queue: str
    type: str
    version: int
    payload: str
    priority: Priority
    max_retries: int
    run_at: datetime | None = None
    unique_key: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobCatalog:
    """Every type of job that this build knows, by name; `max_retries` is for those that set none."""

    types: Mapping[str, JobType]
    max_retries: int

    def job(
        self,
        name: str,
        payload: Json,
        *,
        id: JobId,
        run_at: datetime | None = None,
        unique_key: str | None = None,
        priority: Priority | None = None,
    ) -> NewJob:
        """A new job of a type, on that type's queue.

        Raises:
            UnknownJobType: there is no such type.
            InvalidValue: the payload or the unique key cannot be stored.
        """
        if name not in self.types:
            raise UnknownJobType(name)
        text = check_json("payload", payload)
        if unique_key is not None:
            check_text("unique_key", unique_key, longest=LONGEST_UNIQUE_KEY)
        kind = self.types[name]
        return NewJob(
            id=id,
            queue=kind.queue,
            type=kind.name,
            version=kind.version,
            payload=text,
            priority=kind.priority if priority is None else priority,
            max_retries=self.max_retries if kind.max_retries is None else kind.max_retries,
            run_at=run_at,
            unique_key=unique_key,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job as its worker holds it.

    `claim_count` numbers every claim ever made; `retry_count` is what `max_retries` is measured against.
    `answers` are those given so far, by the key of their question; `checkpoint` is what the handler saved last.
    """

    id: JobId
    queue: str
    type: str
    version: int
    payload: Json
    priority: Priority
    claim_count: int
    retry_count: int
    max_retries: int
    lost_in_a_row: int
    answers: Mapping[str, Answer] = field(default_factory=dict)
    checkpoint: Json | None = None
    lease: JobLease


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """The work is done; `result` is kept for whoever asks. Raises `InvalidValue`: it cannot be kept."""

    result: Json | None = None

    def __post_init__(self) -> None:
        if self.result is not None:
            check_json("result", self.result)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryLater:
    """Not now: run again once `after` has passed, without spending a retry.

    Raises:
        InvalidValue: that is longer than `LONGEST_WAIT`.
    """

    after: timedelta
    why: str | None = None

    def __post_init__(self) -> None:
        _check_wait("after", self.after)


@dataclass(frozen=True, slots=True, kw_only=True)
class SubjectGone:
    """What the job was about is not there any more: done, nothing to retry."""

    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GiveUp:
    """It cannot be done, and trying again would not help."""

    error: str
    reason: JobFailure = JobFailure.GAVE_UP


@dataclass(frozen=True, slots=True, kw_only=True)
class AskHuman:
    """Wait for a person; the handler runs again with the answer."""

    question: Question


@dataclass(frozen=True, slots=True, kw_only=True)
class Errored:
    """An unexpected exception, or a timeout: tried again while retries last."""

    error: str


Ending = Finished | RetryLater | SubjectGone | GiveUp | AskHuman
"""How a handler says that it ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed:
    result: Json | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Later:
    """Pending again, due once `delay` has passed by the database's clock."""

    delay: timedelta
    spends: bool
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    reason: JobFailure
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Paused:
    question: Question


Settlement = Completed | Later | Failed | Paused


def _plain(text: str) -> str:
    """A text that any database can store: without NUL and lone surrogates."""
    return text.replace("\0", "").encode(errors="replace").decode()


def _told(error: str) -> str:
    return _plain(error[:LONGEST_ERROR])


def settle(job: Job, ending: Ending | Errored, dice: float) -> Settlement:
    """The next state of a job. Total, pure, and the only place that decides. `dice` is a number in [0, 1)."""
    match ending:
        case Finished(result=result):
            return Completed(result=result)
        case SubjectGone(what=what):
            return Completed(result={"gone": _told(what)})
        case RetryLater(after=after, why=why):
            return Later(delay=max(after, timedelta(0)), spends=False, error=why and _told(why))
        case GiveUp(error=error, reason=reason):
            return Failed(reason=reason, error=_told(error))
        case AskHuman(question=question):
            return Paused(question=question)
        case Errored(error=error) if job.retry_count < job.max_retries:
            return Later(delay=backoff(job.retry_count + 1, dice), spends=True, error=_told(error))
        case Errored(error=error):
            return Failed(reason=JobFailure.EXHAUSTED, error=_told(error))
        case _:
            assert_never(ending)


def lost_for_good(job: Job) -> Failed | None:
    """How a job ends whose workers were lost too often in a row; None while it may still be run."""
    if job.lost_in_a_row < MAX_LOST_IN_A_ROW:
        return None
    return Failed(
        reason=JobFailure.WORKER_LOST, error=f"its worker was lost {job.lost_in_a_row} times in a row"
    )
