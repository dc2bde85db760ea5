"""Forms, what is posted to them, and what becomes of it."""

import hashlib
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from hymical.domain.errors import (
    EmptySubmission,
    FieldNameTooLong,
    FieldValueTooLong,
    FormClosed,
    IdempotencyConflict,
    InvalidFieldName,
    InvalidFieldValue,
    InvalidIdempotencyKey,
    InvalidValue,
    OriginNotAllowed,
    PostRefused,
    TooManyFields,
)
from hymical.domain.ids import FormId, SubmissionId
from hymical.domain.limits import OPERATORS, FormLimits, IntakeLimits, Standing, tightened
from hymical.domain.origins import origin_of

Fields = tuple[tuple[str, tuple[str, ...]], ...]
"""Named values: names in order of first appearance, each with its values in the order they came."""

_FORM_ID = re.compile(r"[a-z0-9_-]{3,64}", re.ASCII)
_LONGEST_FORM_NAME = 200
_LONGEST_QUOTED_NAME = 40
_LONGEST_HONEYPOT = 128
_MOST_ORIGINS = 50
_LONGEST_WINDOW = timedelta(days=1)
_HONEYPOT, _NEXT = "_gotcha", "_next"
_SURROGATE = re.compile("[\ud800-\udfff]")
_IDEMPOTENCY_KEY = re.compile(r"[!-~]{1,255}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """A public intake address with its rules.

    `allowed_origins` may be empty: then pages of any origin may post. `duplicate_window` is within which an
    identical post is a double click; None takes the setting. Raises `InvalidValue`, naming the field and its rule.
    """

    id: FormId
    name: str
    is_active: bool
    redirect_url: str | None = None
    allowed_origins: tuple[str, ...] = ()
    honeypot_field: str | None = None
    duplicate_window: timedelta | None = None
    limits: FormLimits = OPERATORS
    created_at: datetime

    def __post_init__(self) -> None:
        check_form(
            name=self.name,
            redirect_url=self.redirect_url,
            allowed_origins=self.allowed_origins,
            honeypot_field=self.honeypot_field,
            duplicate_window=self.duplicate_window,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class NewForm:
    """A form that is asked for. Raises `InvalidValue`, naming the field and its rule."""

    id: FormId
    name: str
    is_active: bool = True
    redirect_url: str | None = None
    allowed_origins: tuple[str, ...] = ()
    honeypot_field: str | None = None
    duplicate_window: timedelta | None = None
    limits: FormLimits = OPERATORS

    def __post_init__(self) -> None:
        if not is_form_id(self.id):
            raise InvalidValue("id", "must be 3 to 64 characters out of a-z, 0-9, - and _")
        check_form(
            name=self.name,
            redirect_url=self.redirect_url,
            allowed_origins=self.allowed_origins,
            honeypot_field=self.honeypot_field,
            duplicate_window=self.duplicate_window,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PostedForm:
    """One post as it was read from the wire: decoded pairs in their order, nothing judged yet.

    `origin` is what the browser says of the page. `source` is a digest of where it comes from, and `visitor` of the
    browser there; None when that is unknown. `refusal` is why it could not be read, if so.
    """

    form_id: FormId
    pairs: Sequence[tuple[str, str]]
    origin: str | None = None
    idempotency_key: str | None = None
    source: bytes | None = None
    visitor: bytes | None = None
    refusal: PostRefused | None = None

    @property
    def characters(self) -> int:
        """Of its names and values."""
        return sum(len(name) + len(value) for name, value in self.pairs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """`fingerprint` is a digest of its content. One that is spam is kept and not delivered."""

    id: SubmissionId
    form_id: FormId
    received_at: datetime
    fields: Fields
    is_spam: bool = False
    fingerprint: bytes = b""
    idempotency_key: str | None = None
    duplicate_key: bytes | None = None

    @property
    def field_count(self) -> int:
        """How many different names it holds."""
        return len(self.fields)

    @property
    def repetition(self) -> tuple[FormId, str | bytes] | None:
        """The same for submissions of which the second repeats the first; None for one that repeats nothing."""
        same = self.idempotency_key or self.duplicate_key
        return None if same is None else (self.form_id, same)


@dataclass(frozen=True, slots=True, kw_only=True)
class Earlier:
    """A submission that a post may repeat, as far as a receipt needs it."""

    submission_id: SubmissionId
    received_at: datetime
    field_count: int
    fingerprint: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """What the sender of a post is told once it is stored.

    `continue_at` is where a browser goes on; `standing` is what is left of its source's rate limit.
    """

    submission_id: SubmissionId
    form_id: FormId
    received_at: datetime
    field_count: int
    duplicate: bool = False
    continue_at: str | None = None
    standing: Standing | None = None


def is_form_id(text: str) -> bool:
    return _FORM_ID.fullmatch(text) is not None


def check_form(
    *,
    name: str,
    redirect_url: str | None,
    allowed_origins: Sequence[str],
    honeypot_field: str | None,
    duplicate_window: timedelta | None,
) -> None:
    """Raises `InvalidValue` for the first rule that is broken."""
    if not 1 <= len(name) <= _LONGEST_FORM_NAME or not is_storable(name):
        raise InvalidValue(
            "name", f"must be 1 to {_LONGEST_FORM_NAME} characters, without NUL or lone surrogates"
        )
    if redirect_url is not None and origin_of(redirect_url) is None:
        raise InvalidValue("redirect_url", "must be an absolute http(s) address in plain ASCII")
    if len(allowed_origins) > _MOST_ORIGINS:
        raise InvalidValue("allowed_origins", f"must be at most {_MOST_ORIGINS}")
    for origin in allowed_origins:
        if origin_of(origin) != origin:
            raise InvalidValue(
                "allowed_origins", "must be origins as browsers write them: https://example.com"
            )
    if honeypot_field is not None and not (
        1 <= len(honeypot_field) <= _LONGEST_HONEYPOT and _is_name(honeypot_field)
    ):
        raise InvalidValue(
            "honeypot_field", f"must be a field's name of at most {_LONGEST_HONEYPOT} characters"
        )
    if duplicate_window is not None and not timedelta(0) <= duplicate_window <= _LONGEST_WINDOW:
        raise InvalidValue("duplicate_window_seconds", "must be 0 to 86400")


def accept(
    form: Form,
    post: PostedForm,
    *,
    limits: IntakeLimits,
    duplicate_window: timedelta,
    submission_id: SubmissionId,
    received_at: datetime,
) -> Submission:
    """A post becomes a submission; control fields are left out, and a filled honeypot makes it spam.

    Raises:
        FormClosed, OriginNotAllowed, InvalidIdempotencyKey, EmptySubmission, TooManyFields, InvalidFieldName,
        FieldNameTooLong, InvalidFieldValue, FieldValueTooLong: the first rule that it breaks.
    """
    if post.refusal is not None:
        raise post.refusal
    if not form.is_active:
        raise FormClosed(form.id)
    if post.origin not in {None, "null"} and form.allowed_origins and post.origin not in form.allowed_origins:
        raise OriginNotAllowed(post.origin or "")
    if post.idempotency_key is not None and _IDEMPOTENCY_KEY.fullmatch(post.idempotency_key) is None:
        raise InvalidIdempotencyKey
    honeypots = {_HONEYPOT, form.honeypot_field}
    kept = [pair for pair in post.pairs if pair[0] != _NEXT and pair[0] not in honeypots]
    fields = _fields(kept, tightened(limits, form.limits))
    fingerprint = hashlib.sha256(repr((form.id, fields)).encode("utf-8", "surrogatepass")).digest()
    window = window_of(form, duplicate_window)
    by_itself = post.idempotency_key is None and post.visitor is not None and window > timedelta(0)
    return Submission(
        id=submission_id,
        form_id=form.id,
        received_at=received_at,
        fields=fields,
        is_spam=any(value for name, value in post.pairs if name in honeypots),
        fingerprint=fingerprint,
        idempotency_key=post.idempotency_key,
        duplicate_key=hashlib.sha256(fingerprint + (post.visitor or b"")).digest() if by_itself else None,
    )


def window_of(form: Form, operators: timedelta) -> timedelta:
    """For how long the same content from the same visitor is the same submission: by the form, or the operator."""
    return operators if form.duplicate_window is None else form.duplicate_window


def repeats(submission: Submission, earlier: Earlier) -> Earlier:
    """The earlier submission that this one repeats. Raises `IdempotencyConflict` for other content."""
    if earlier.fingerprint != submission.fingerprint:
        raise IdempotencyConflict
    return earlier


def next_address(form: Form, post: PostedForm) -> str | None:
    """Where a browser goes on: `_next` if it leads to an allowed origin, else the form's own address, if any."""
    wanted = next((value for name, value in post.pairs if name == _NEXT and value), None)
    if wanted is not None:
        origin = origin_of(wanted)
        own = origin_of(form.redirect_url) if form.redirect_url else None
        if origin is not None and (origin == own or origin in form.allowed_origins):
            return wanted
    return form.redirect_url


def receipt(submission: Submission, continue_at: str | None, standing: Standing | None) -> Receipt:
    return Receipt(
        submission_id=submission.id,
        form_id=submission.form_id,
        received_at=submission.received_at,
        field_count=submission.field_count,
        continue_at=continue_at,
        standing=standing,
    )


def receipt_of_earlier(
    earlier: Earlier, form_id: FormId, continue_at: str | None, standing: Standing | None
) -> Receipt:
    return Receipt(
        submission_id=earlier.submission_id,
        form_id=form_id,
        received_at=earlier.received_at,
        field_count=earlier.field_count,
        duplicate=True,
        continue_at=continue_at,
        standing=standing,
    )


def as_earlier(submission: Submission) -> Earlier:
    return Earlier(
        submission_id=submission.id,
        received_at=submission.received_at,
        field_count=submission.field_count,
        fingerprint=submission.fingerprint,
    )


def quoted(name: str) -> str:
    """A field's name as an error may show it: cut short, without characters that do not print."""
    shown = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in name)
    if len(shown) <= _LONGEST_QUOTED_NAME:
        return shown
    return shown[:_LONGEST_QUOTED_NAME] + "…"


def _fields(pairs: Sequence[tuple[str, str]], limits: IntakeLimits) -> Fields:
    if not pairs:
        raise EmptySubmission
    if len(pairs) > limits.max_fields:
        raise TooManyFields(limits.max_fields)
    gathered: dict[str, list[str]] = {}
    for name, value in pairs:
        if not _is_name(name):
            raise InvalidFieldName(quoted(name))
        if len(name) > limits.max_field_name_length:
            raise FieldNameTooLong(quoted(name))
        if not is_storable(value):
            raise InvalidFieldValue(quoted(name))
        if len(value) > limits.max_field_value_length:
            raise FieldValueTooLong(quoted(name))
        gathered.setdefault(name, []).append(value)
    return tuple((name, tuple(values)) for name, values in gathered.items())


def _is_name(text: str) -> bool:
    if text.isascii() and text.isprintable():
        return bool(text)
    return is_storable(text) and not any(unicodedata.category(char) == "Cc" for char in text)


def is_storable(text: str) -> bool:
    """Whether text can be kept and sent on as it is: no NUL, no lone surrogate."""
    return "\0" not in text and (text.isascii() or _SURROGATE.search(text) is None)
