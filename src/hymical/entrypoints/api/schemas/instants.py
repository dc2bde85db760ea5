"""Instants in answers."""

from datetime import datetime
from typing import Annotated

from pydantic import PlainSerializer, WithJsonSchema

from hymical.domain.instants import rfc3339

Instant = Annotated[
    datetime,
    PlainSerializer(rfc3339, return_type=str),
    WithJsonSchema({"type": "string", "format": "date-time", "examples": ["2026-11-29T12:00:00.000000Z"]}),
]
"""RFC 3339 in UTC with microseconds and `Z`."""
