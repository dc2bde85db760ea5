"""Forms, submissions and receipts on the wire."""

from pydantic import BaseModel, ConfigDict, Field

from hymical.domain.forms import Form, Receipt, Submission
from hymical.entrypoints.api.schemas.instants import Instant


class FormIn(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    id: str = Field(description="Chosen by you, 3 to 64 of a-z, 0-9, - and _; it never changes.")
    name: str = Field(description="For people, 1 to 200 characters.")
    is_active: bool = Field(default=True, description="Whether posts are accepted.")


class FormOut(BaseModel):
    id: str
    name: str
    is_active: bool
    created_at: Instant

    @classmethod
    def of(cls, form: Form) -> "FormOut":
        return cls(id=form.id, name=form.name, is_active=form.is_active, created_at=form.created_at)


class SubmissionOut(BaseModel):
    id: str
    form_id: str
    received_at: Instant
    field_count: int

    @classmethod
    def of(cls, submission: Submission) -> "SubmissionOut":
        return cls(
            id=submission.id,
            form_id=submission.form_id,
            received_at=submission.received_at,
            field_count=submission.field_count,
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
            fields={name: list(values) for name, values in submission.fields},
        )


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
