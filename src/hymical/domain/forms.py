"""Forms, what is posted to them, and what becomes of it."""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from hymical.domain.errors import (
    EmptySubmission,
    FieldNameTooLong,
    FieldValueTooLong,
    FormClosed,
    InvalidFieldName,
    InvalidFieldValue,
    InvalidValue,
    TooManyFields,
)
from hymical.domain.ids import FormId, SubmissionId
from hymical.domain.limits import IntakeLimits

Fields = tuple[tuple[str, tuple[str, ...]], ...]
"""Named values: names in order of first appearance, each with its values in the order they came."""

_FORM_ID = re.compile(r"[a-z0-9_-]{3,64}", re.ASCII)
_LONGEST_FORM_NAME = 200
_LONGEST_QUOTED_NAME = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    id: FormId
    name: str
    is_active: bool
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class NewForm:
    """A form that is asked for. Raises `InvalidValue`, naming the field and its rule."""

    id: FormId
    name: str
    is_active: bool = True

    def __post_init__(self) -> None:
        if not is_form_id(self.id):
            raise InvalidValue("id", "must be 3 to 64 characters out of a-z, 0-9, - and _")
        if not 1 <= len(self.name) <= _LONGEST_FORM_NAME or not _storable(self.name):
            raise InvalidValue(
                "name", f"must be 1 to {_LONGEST_FORM_NAME} characters, without NUL or lone surrogates"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class PostedForm:
    """One post as it was read from the wire: decoded pairs in their order, nothing judged yet."""

    form_id: FormId
    pairs: Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    id: SubmissionId
    form_id: FormId
    received_at: datetime
    fields: Fields

    @property
    def field_count(self) -> int:
        """How many different names it holds."""
        return len(self.fields)


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """What the sender of a post is told once it is stored."""

    submission_id: SubmissionId
    form_id: FormId
    received_at: datetime
    field_count: int
    duplicate: bool = False


def is_form_id(text: str) -> bool:
    return _FORM_ID.fullmatch(text) is not None


def accept(
    form: Form,
    post: PostedForm,
    *,
    limits: IntakeLimits,
    submission_id: SubmissionId,
    received_at: datetime,
) -> Submission:
    """A post becomes a submission.

    Raises:
        FormClosed, EmptySubmission, TooManyFields, InvalidFieldName, FieldNameTooLong, InvalidFieldValue,
        FieldValueTooLong: the first rule that it breaks.
    """
    if not form.is_active:
        raise FormClosed(form.id)
    return Submission(
        id=submission_id, form_id=form.id, received_at=received_at, fields=_fields(post.pairs, limits)
    )


def receipt(submission: Submission) -> Receipt:
    return Receipt(
        submission_id=submission.id,
        form_id=submission.form_id,
        received_at=submission.received_at,
        field_count=submission.field_count,
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
        if not name or not _storable(name) or any(unicodedata.category(char) == "Cc" for char in name):
            raise InvalidFieldName(quoted(name))
        if len(name) > limits.max_field_name_length:
            raise FieldNameTooLong(quoted(name))
        if not _storable(value):
            raise InvalidFieldValue(quoted(name))
        if len(value) > limits.max_field_value_length:
            raise FieldValueTooLong(quoted(name))
        gathered.setdefault(name, []).append(value)
    return tuple((name, tuple(values)) for name, values in gathered.items())


def _storable(text: str) -> bool:
    """Whether text can be kept and sent on as it is: no NUL, no lone surrogate."""
    return "\0" not in text and (text.isascii() or not any("\ud800" <= char <= "\udfff" for char in text))
