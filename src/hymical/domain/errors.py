"""Everything that Hymical refuses, as one tree; errors carry facts, the edges find the words."""

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hymical.domain.limits import Standing


class HymicalError(Exception):
    """The root of everything that is refused on purpose."""


class PostRefused(HymicalError):
    """A post to a form was not accepted; nothing of it is stored.

    `standing` is how the rate limit stands that it has spent of, if it has.
    """

    standing: "Standing | None" = None


@dataclass(eq=False)
class FormNotFound(PostRefused):
    form_id: str


@dataclass(eq=False)
class FormClosed(PostRefused):
    form_id: str


@dataclass(eq=False)
class OriginNotAllowed(PostRefused):
    """The form has a list of origins, and the page that posted is of none of them."""

    origin: str


class InvalidIdempotencyKey(PostRefused):
    pass


class IdempotencyConflict(PostRefused):
    """The key was used before, with other content."""


@dataclass(eq=False)
class UnsupportedMediaType(PostRefused):
    media_type: str


@dataclass(eq=False)
class BodyTooLarge(PostRefused):
    limit: int


@dataclass(eq=False)
class MalformedBody(PostRefused):
    """The body is not what its content type says; `flaw` says where it goes wrong, without quoting it."""

    flaw: str


@dataclass(eq=False)
class UndecodableText(PostRefused):
    """Bytes of a name or a value are not text in the encoding that applies to them."""

    encoding: str


class EmptySubmission(PostRefused):
    pass


@dataclass(eq=False)
class RateLimited(PostRefused):
    """Too many posts; `retry_after` is in whole seconds, and a post is allowed once it is over."""

    retry_after: timedelta


@dataclass(eq=False)
class TooManyFields(PostRefused):
    limit: int


@dataclass(eq=False)
class FieldRefused(PostRefused):
    """One field broke a rule; `field` is its name, cut to a readable length."""

    field: str


class FieldNameTooLong(FieldRefused):
    pass


class InvalidFieldName(FieldRefused):
    pass


class FieldValueTooLong(FieldRefused):
    pass


class InvalidFieldValue(FieldRefused):
    pass


class FileUploadNotSupported(FieldRefused):
    pass


@dataclass(eq=False)
class NotFound(HymicalError):
    """`kind` is the resource's name in the API, such as `form` or `delivery`."""

    kind: str
    id: str


@dataclass(eq=False)
class AlreadyExists(HymicalError):
    kind: str
    id: str


@dataclass(eq=False)
class FormNotEmpty(HymicalError):
    """A form that holds submissions is not deleted."""

    form_id: str


@dataclass(eq=False)
class NotSpam(HymicalError):
    """Only a submission that is kept as spam can be marked good, and only once."""

    submission_id: str


@dataclass(eq=False)
class NotReplayable(HymicalError):
    """Only a failed delivery can be replayed, and only while there is what to send, and where to.

    `state` is the one it is in; `reason` says what is in the way of one that failed: it failed for good, its
    submission was erased, or its destination is deleted or disabled.
    """

    delivery_id: str
    state: str
    reason: str | None = None


@dataclass(eq=False)
class InvalidValue(HymicalError):
    """A value given to the management API or a command breaks a rule; `rule` says which, in words."""

    field: str
    rule: str


@dataclass(eq=False)
class NotResendable(HymicalError):
    """There is nothing left to send, or nowhere to send it."""

    delivery_id: str


@dataclass(eq=False)
class UnknownJobType(HymicalError):
    """This build has no job type of that name."""

    type: str


@dataclass(eq=False)
class InvalidPayload(HymicalError):
    """A job's payload is not what its type takes; `flaw` says why, without quoting values."""

    flaw: str


@dataclass(eq=False)
class JobLost(HymicalError):
    """The lease is not held any more: the job was reclaimed, cancelled or deleted."""

    job_id: str


@dataclass(eq=False)
class JobNotWaiting(HymicalError):
    """The job waits for no answer, or for that of another question, which `question` names."""

    job_id: str
    state: str
    question: str | None = None


@dataclass(eq=False)
class JobEnded(HymicalError):
    """Only a job that has not ended can be cancelled."""

    job_id: str
    state: str


@dataclass(eq=False)
class JobNotFailed(HymicalError):
    """Only a failed job can be retried by hand."""

    job_id: str
    state: str


@dataclass(eq=False)
class TooManyColumns(HymicalError):
    """The submissions have more different names than a file with columns may have."""

    limit: int


class ExportWithdrawn(HymicalError):
    """What was written of an export is gone: a submission that it holds was erased, or its time was up."""


@dataclass(eq=False)
class ExportNotReady(HymicalError):
    """Only a completed export has a file; `state` is its job's."""

    job_id: str
    state: str


@dataclass(eq=False)
class ExportGone(HymicalError):
    """There was a file; `reason` says why it is removed."""

    job_id: str
    reason: str


class Unauthorized(HymicalError):
    """No key, or one that is malformed, unknown or revoked: the answer is the same for all."""


class SecretUnreadable(HymicalError):
    """A stored secret was sealed with a key that FORMS_SECRET_KEY does not hold (any more)."""


@dataclass(eq=False)
class StorageUnavailable(HymicalError):
    """The database did not answer, or broke off; what was being written may or may not be there.

    `said` is the server's own first line, where it answered and refused.
    """

    cause: str = ""
    said: str | None = None


class Overloaded(HymicalError):
    """More posts are waiting for the database than this process will hold."""


@dataclass(eq=False)
class SchemaMismatch(HymicalError):
    """`found` is the database's migration, or None for a database that was never migrated."""

    found: str | None
    expected: str

    @property
    def is_newer(self) -> bool:
        """Whether a newer build has migrated it: migrations are numbered, with leading zeros."""
        return self.found is not None and self.found > self.expected
