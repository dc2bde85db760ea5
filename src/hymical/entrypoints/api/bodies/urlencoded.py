"""Reads application/x-www-form-urlencoded, as https://url.spec.whatwg.org/#urlencoded-parsing does."""

import re
from codecs import BOM_UTF8
from collections.abc import Mapping
from string import hexdigits

from hymical.domain.errors import TooManyFields
from hymical.domain.limits import IntakeLimits
from hymical.entrypoints.api.bodies.text import CHARSET_FIELD, Pairs, form_encoding, with_line_feeds

_CHARSET_NAME = CHARSET_FIELD.encode()
_ESCAPE = re.compile(rb"(%[0-9A-Fa-f]{2})")
_ESCAPED = {f"%{high}{low}".encode(): bytes.fromhex(high + low) for high in hexdigits for low in hexdigits}


def urlencoded_pairs(body: bytes, parameters: Mapping[str, str], limits: IntakeLimits) -> Pairs:
    """The fields as browsers write them; an escape that is none stays as it was typed.

    Raises:
        TooManyFields, MalformedBody, UndecodableText: what is wrong first.
    """
    fields: list[tuple[bytes, bytes]] = []
    charset = b""
    for piece in body.removeprefix(BOM_UTF8).replace(b"+", b" ").split(b"&"):
        if not piece:
            continue
        name, _, value = piece.partition(b"=")
        if b"%" in piece:
            name, value = _unescaped(name), _unescaped(value)
        if name == _CHARSET_NAME:
            charset = charset or value
        elif len(fields) == limits.max_fields:
            raise TooManyFields(limits.max_fields)
        else:
            fields.append((name, value))
    text = form_encoding(parameters.get("charset"), charset).text
    return tuple((text(name), with_line_feeds(text(value))) for name, value in fields)


def _unescaped(raw: bytes) -> bytes:
    if b"%" not in raw:
        return raw
    pieces = _ESCAPE.split(raw)
    pieces[1::2] = [_ESCAPED[escape] for escape in pieces[1::2]]
    return b"".join(pieces)
