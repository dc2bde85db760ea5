"""Instants in answers and in requests."""

from datetime import datetime
from typing import Annotated

from pydantic import PlainSerializer, PlainValidator, WithJsonSchema

from hymical.domain.instants import from_rfc3339, rfc3339

_ON_THE_WIRE = WithJsonSchema(
    {"type": "string", "format": "date-time", "examples": ["2026-11-29T12:00:00.000000Z"]}
)

Instant = Annotated[
    datetime,
    PlainSerializer(rfc3339, return_type=str),
    _ON_THE_WIRE,
]
"""RFC 3339 in UTC with microseconds and `Z`."""


def _instant(given: object) -> datetime:
    if not isinstance(given, str):
        # a TypeError would be a failure of ours
        raise ValueError("must be text")  # noqa: TRY004
    return from_rfc3339(given)


InstantIn = Annotated[datetime, PlainValidator(_instant), _ON_THE_WIRE]
"""RFC 3339 with any offset."""
