"""How much one post may hold."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class IntakeLimits:
    """Body in bytes; fields counted as name-value pairs; names and values in characters."""

    max_body_bytes: int = 262_144
    max_fields: int = 100
    max_field_name_length: int = 128
    max_field_value_length: int = 16_384
