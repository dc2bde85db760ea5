"""Limits of a form on the wire."""

from datetime import timedelta

from pydantic import BaseModel, ConfigDict, Field

from hymical.domain.limits import FormLimits, RateLimit

_WITHIN = "at most the operator's {}, which null takes."


class RateLimitShape(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    requests: int = Field(ge=1, le=1_000_000, description="How many at once.")
    window_seconds: int = Field(ge=1, le=31_536_000, description="The time in which as many come again.")

    def to_domain(self) -> RateLimit:
        return RateLimit(requests=self.requests, window=timedelta(seconds=self.window_seconds))

    @classmethod
    def of(cls, limit: RateLimit) -> "RateLimitShape":
        return cls(requests=limit.requests, window_seconds=round(limit.window.total_seconds()))


class FormLimitsShape(BaseModel):
    """What a form sets for itself; what it leaves out is the operator's."""

    model_config = ConfigDict(extra="forbid", strict=True)

    max_fields: int | None = Field(
        default=None, ge=1, description="Fields of a post, " + _WITHIN.format("FORMS_MAX_FIELDS")
    )
    max_field_name_length: int | None = Field(
        default=None, ge=1, description="Characters, " + _WITHIN.format("FORMS_MAX_FIELD_NAME_LENGTH")
    )
    max_field_value_length: int | None = Field(
        default=None, ge=1, description="Characters, " + _WITHIN.format("FORMS_MAX_FIELD_VALUE_LENGTH")
    )
    rate_limit: RateLimitShape | None = Field(
        default=None, description="Of all posts to this form, in place of the operator's, wider or tighter."
    )

    def to_domain(self) -> FormLimits:
        """Raises `InvalidValue`."""
        return FormLimits(
            max_fields=self.max_fields,
            max_field_name_length=self.max_field_name_length,
            max_field_value_length=self.max_field_value_length,
            rate_limit=self.rate_limit.to_domain() if self.rate_limit else None,
        )

    @classmethod
    def of(cls, limits: FormLimits) -> "FormLimitsShape":
        return cls(
            max_fields=limits.max_fields,
            max_field_name_length=limits.max_field_name_length,
            max_field_value_length=limits.max_field_value_length,
            rate_limit=RateLimitShape.of(limits.rate_limit) if limits.rate_limit else None,
        )
