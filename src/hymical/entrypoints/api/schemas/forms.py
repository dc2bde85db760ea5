"""Forms, submissions and receipts on the wire."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic.config import JsonDict

from hymical.domain.errors import InvalidValue
from hymical.domain.forms import Form, NewForm, Receipt, Submission
from hymical.domain.ids import SubmissionId
from hymical.domain.limits import OPERATORS
from hymical.domain.origins import origin_of
from hymical.entrypoints.api.schemas.instants import Instant
from hymical.entrypoints.api.schemas.limits import FormLimitsShape
from hymical.ports.forms import SubmissionPlace

_NAME = "For people, 1 to 200 characters."
# the domain checks it, in words; here it is only described
_NAME_LENGTH: JsonDict = {"minLength": 1, "maxLength": 200}
_IS_ACTIVE = "Whether posts are accepted."
_REDIRECT_URL = "Where a browser goes on after a post; without it, to a thank-you page."
_ALLOWED_ORIGINS = "Pages that may post, as https://example.com; an empty list lets any page post."
_HONEYPOT_FIELD = "A field that people do not see, beside _gotcha: filled in, it marks a post as spam."
_DUPLICATE_WINDOW = (
    "Seconds within which an identical post is a double click; 0 is off, null takes the setting."
)
_EPOCH, _MICROSECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)
_CURSOR = re.compile(r"([0-9]{1,17})-([a-z0-9_]{1,64})", re.ASCII)
_LIMITS = "Its own, where they are not the operator's."


class FormIn(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    id: str = Field(
        json_schema_extra={"pattern": "^[a-z0-9_-]{3,64}$"},
        description="Chosen by you, 3 to 64 of a-z, 0-9, - and _; it never changes.",
    )
    name: str = Field(json_schema_extra=_NAME_LENGTH, description=_NAME)
    is_active: bool = Field(default=True, description=_IS_ACTIVE)
    redirect_url: str | None = Field(default=None, description=_REDIRECT_URL)
    allowed_origins: list[str] = Field(default_factory=list, description=_ALLOWED_ORIGINS)
    honeypot_field: str | None = Field(default=None, description=_HONEYPOT_FIELD)
    duplicate_window_seconds: int | None = Field(default=None, ge=0, le=86_400, description=_DUPLICATE_WINDOW)
    limits: FormLimitsShape | None = Field(default=None, description=_LIMITS)

    def to_domain(self) -> NewForm:
        """Raises `InvalidValue`."""
        return NewForm(**_in_domain_terms(dict(self)))


class FormPatch(BaseModel):
    """What is left out stays as it is."""

    model_config = ConfigDict(extra="forbid", strict=True)

    name: str = Field(default="", json_schema_extra=_NAME_LENGTH, description=_NAME)
    is_active: bool = Field(default=True, description=_IS_ACTIVE)
    redirect_url: str | None = Field(default=None, description=_REDIRECT_URL)
    allowed_origins: list[str] = Field(default_factory=list, description=_ALLOWED_ORIGINS)
    honeypot_field: str | None = Field(default=None, description=_HONEYPOT_FIELD)
    duplicate_window_seconds: int | None = Field(default=None, ge=0, le=86_400, description=_DUPLICATE_WINDOW)
    limits: FormLimitsShape | None = Field(default=None, description=_LIMITS + " Replaces all of them.")

    def changes(self) -> dict[str, Any]:
        """Only what the request named, as fields of the domain's `Form`."""
        return _in_domain_terms({name: getattr(self, name) for name in self.model_fields_set})


def _in_domain_terms(given: dict[str, Any]) -> dict[str, Any]:
    if "allowed_origins" in given:
        given["allowed_origins"] = tuple(_as_browsers_write_it(origin) for origin in given["allowed_origins"])
    if "duplicate_window_seconds" in given:
        seconds = given.pop("duplicate_window_seconds")
        given["duplicate_window"] = None if seconds is None else timedelta(seconds=seconds)
    if "limits" in given:
        given["limits"] = given["limits"].to_domain() if given["limits"] else OPERATORS
    return given


def _as_browsers_write_it(origin: str) -> str:
    """Without the slash, in small letters, without a default port; anything else is left to be refused."""
    bare = origin.lower().removesuffix("/")
    return (origin_of(bare) or origin) if bare.count("/") == bare.count("://") * 2 else origin


class FormOut(BaseModel):
    id: str
    name: str
    is_active: bool
    redirect_url: str | None
    allowed_origins: list[str]
    honeypot_field: str | None
    duplicate_window_seconds: int | None
    limits: FormLimitsShape
    created_at: Instant

    @classmethod
    def of(cls, form: Form) -> "FormOut":
        window = form.duplicate_window
        return cls(
            id=form.id,
            name=form.name,
            is_active=form.is_active,
            redirect_url=form.redirect_url,
            allowed_origins=list(form.allowed_origins),
            honeypot_field=form.honeypot_field,
            duplicate_window_seconds=None if window is None else round(window.total_seconds()),
            limits=FormLimitsShape.of(form.limits),
            created_at=form.created_at,
        )


class SubmissionOut(BaseModel):
    id: str
    form_id: str
    received_at: Instant
    field_count: int
    is_spam: bool

    @classmethod
    def of(cls, submission: Submission) -> "SubmissionOut":
        return cls(
            id=submission.id,
            form_id=submission.form_id,
            received_at=submission.received_at,
            field_count=submission.field_count,
            is_spam=submission.is_spam,
        )


class SubmissionWithFields(SubmissionOut):
    fields: dict[str, list[str]] = Field(description="Every value of every name, in the order they came.")

    @classmethod
    def of(cls, submission: Submission) -> "SubmissionWithFields":
        return cls(
            id=submission.id,
            form_id=submission.form_id,
            received_at=submission.received_at,
            field_count=submission.field_count,
            is_spam=submission.is_spam,
            fields={name: list(values) for name, values in submission.fields},
        )


def cursor_of(end: SubmissionPlace | None) -> str | None:
    """What a page of submissions that ends there gives as its `next_cursor`."""
    return None if end is None else f"{(end.received_at - _EPOCH) // _MICROSECOND}-{end.id}"


def place_of(cursor: str | None) -> SubmissionPlace | None:
    """Raises `InvalidValue` for what `cursor_of` never gives."""
    if cursor is None:
        return None
    match = _CURSOR.fullmatch(cursor)
    if match is None:
        raise InvalidValue("cursor", "must be the next_cursor of an earlier page")
    return SubmissionPlace(received_at=_EPOCH + int(match[1]) * _MICROSECOND, id=SubmissionId(match[2]))


class ReceiptOut(BaseModel):
    submission_id: str
    form_id: str
    received_at: Instant
    field_count: int
    duplicate: bool

    @classmethod
    def of(cls, receipt: Receipt) -> "ReceiptOut":
        return cls(
            submission_id=receipt.submission_id,
            form_id=receipt.form_id,
            received_at=receipt.received_at,
            field_count=receipt.field_count,
            duplicate=receipt.duplicate,
        )
