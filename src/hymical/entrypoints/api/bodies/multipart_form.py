"""Reads multipart/form-data (RFC 7578, and https://html.spec.whatwg.org/#multipart-form-data)."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from multipart import MultipartError, MultipartSegment, ParserLimitReached, PushMultipartParser

from hymical.domain.errors import FileUploadNotSupported, MalformedBody, TooManyFields
from hymical.domain.forms import quoted
from hymical.domain.limits import IntakeLimits
from hymical.entrypoints.api.bodies.headers import disposition_parameters, media_type
from hymical.entrypoints.api.bodies.text import (
    CHARSET_FIELD,
    Pairs,
    TextEncoding,
    encoding_labelled,
    form_encoding,
    with_line_feeds,
)

_BOUNDARY = re.compile(r"[!-~](?:[ -~]{0,68}[!-~])?")
_CHARSET_NAME = CHARSET_FIELD.encode()
_HEADER_BYTES = 4096
_BYTES_PER_CHARACTER = 4
_PLAIN_TRANSFER = frozenset({"7bit", "8bit", "binary"})
# How many parts may come besides the fields: empty file inputs and control fields.
_SPARE_PARTS = 100


@dataclass(frozen=True, slots=True)
class _Part:
    """A part as bytes; `charset` is the label it carries itself, and what a file holds is not kept."""

    name: bytes
    value: bytes
    charset: str | None
    is_file: bool


def multipart_pairs(body: bytes, parameters: Mapping[str, str], limits: IntakeLimits) -> Pairs:
    """The text fields. A file input that was left empty is skipped.

    Raises:
        MalformedBody, TooManyFields, FileUploadNotSupported, UndecodableText: what is wrong first.
    """
    boundary = parameters.get("boundary", "")
    if _BOUNDARY.fullmatch(boundary) is None:
        raise MalformedBody("its content type has no boundary of 1 to 70 printable characters")
    fields: list[_Part] = []
    charset = b""
    for number, (headers, content) in enumerate(_segments(body, boundary, limits), start=1):
        part = _part(headers, content)
        if part is not None and part.name == _CHARSET_NAME:
            charset = charset or part.value
        elif part is not None:
            fields.append(part)
        if len(fields) > limits.max_fields or number > limits.max_fields + _SPARE_PARTS:
            raise TooManyFields(limits.max_fields)
    encoding = form_encoding(parameters.get("charset"), charset)
    return tuple(_pair(part, encoding) for part in fields)


def _segments(body: bytes, boundary: str, limits: IntakeLimits) -> Iterator[tuple[dict[str, str], bytes]]:
    """The headers of each part, by title-cased name, and its content."""
    parser = PushMultipartParser(
        boundary,
        # Latin-1 carries bytes through unchanged; the form's encoding is known only at the end.
        header_charset="latin-1",
        max_header_size=_HEADER_BYTES + _BYTES_PER_CHARACTER * limits.max_field_name_length,
    )
    headers: dict[str, str] = {}
    content: list[bytes] = []
    try:
        for event in parser.parse(body):
            if event is None:
                yield headers, b"".join(content)
            elif isinstance(event, MultipartSegment):
                headers, content = dict(event.headerlist), []
            else:
                content.append(event)
    except ParserLimitReached:
        raise MalformedBody("a part has too many headers, or one that is too long") from None
    except MultipartError:
        raise MalformedBody("a boundary, or the headers of a part, are not well formed") from None
    try:
        parser.close()
    except MultipartError:
        raise MalformedBody("it ends before its closing boundary") from None


def _part(headers: Mapping[str, str], content: bytes) -> _Part | None:
    """None for a file input that was left empty."""
    disposition = disposition_parameters(headers["Content-Disposition"])
    if "name" not in disposition:
        raise MalformedBody("a part has no name")
    if headers.get("Content-Transfer-Encoding", "8bit").strip().lower() not in _PLAIN_TRANSFER:
        raise MalformedBody("a part has a transfer encoding, which forms do not use")
    is_file = "filename" in disposition or "filename*" in disposition
    # RFC 8187 puts the charset and the language in front: UTF-8'en'photo.png
    file_name = disposition.get("filename") or disposition.get("filename*", "").rpartition("'")[2]
    if is_file and not file_name and not content:
        return None
    _, own = media_type(headers.get("Content-Type", ""))
    return _Part(
        name=disposition["name"].encode("latin-1"),
        value=b"" if is_file else content,
        charset=own.get("charset"),
        is_file=is_file,
    )


def _pair(part: _Part, encoding: TextEncoding) -> tuple[str, str]:
    name = encoding.text(part.name)
    if part.is_file:
        raise FileUploadNotSupported(quoted(name))
    own = encoding_labelled(part.charset) if part.charset else encoding
    return name, with_line_feeds(own.text(part.value))
