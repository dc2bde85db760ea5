"""Reads the body of a post within its limit and hands it to the reader of its media type."""

from collections.abc import AsyncIterable

from hymical.domain.errors import BodyTooLarge, UnsupportedMediaType
from hymical.domain.limits import IntakeLimits
from hymical.entrypoints.api.bodies.headers import media_type
from hymical.entrypoints.api.bodies.json_object import json_pairs
from hymical.entrypoints.api.bodies.multipart_form import multipart_pairs
from hymical.entrypoints.api.bodies.text import Pairs
from hymical.entrypoints.api.bodies.urlencoded import urlencoded_pairs

_READERS = {
    "application/x-www-form-urlencoded": urlencoded_pairs,
    "multipart/form-data": multipart_pairs,
    "application/json": json_pairs,
}
_LONGEST_SHOWN_TYPE = 128


async def read_pairs(
    content_type: str | None,
    content_length: str | None,
    chunks: AsyncIterable[bytes],
    limits: IntakeLimits,
) -> Pairs:
    """The decoded pairs of a posted form, in the order they were sent.

    Both headers are given as received, or None. No byte is read when the declared length is over the limit or
    the media type is not read here; a missing, unreadable or untrue length is caught while reading.

    Raises:
        BodyTooLarge, UnsupportedMediaType, MalformedBody, UndecodableText, TooManyFields, InvalidFieldValue,
        FileUploadNotSupported: what is wrong first.
    """
    if _declared(content_length) > limits.max_body_bytes:
        raise BodyTooLarge(limits.max_body_bytes)
    essence, parameters = media_type(content_type or "")
    reader = _READERS.get(essence.lower())
    if reader is None:
        raise UnsupportedMediaType("".join(filter(str.isprintable, essence))[:_LONGEST_SHOWN_TYPE])
    return reader(await _read(chunks, limits.max_body_bytes), parameters, limits)


async def _read(chunks: AsyncIterable[bytes], limit: int) -> bytes:
    body = bytearray()
    async for chunk in chunks:
        if len(body) + len(chunk) > limit:
            raise BodyTooLarge(limit)
        body += chunk
    return bytes(body)


def _declared(content_length: str | None) -> int:
    try:
        return int(content_length or 0)
    except ValueError:
        return 0
