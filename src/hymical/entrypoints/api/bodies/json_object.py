"""Reads application/json (RFC 8259): one flat object of strings, numbers, booleans, or lists of those."""

import json
from codecs import BOM_UTF8
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

from hymical.domain.errors import InvalidFieldValue, MalformedBody, TooManyFields
from hymical.domain.forms import quoted
from hymical.domain.limits import IntakeLimits
from hymical.entrypoints.api.bodies.text import CHARSET_FIELD, UTF_8, Pairs, with_line_feeds


def json_pairs(body: bytes, _parameters: Mapping[str, str], limits: IntakeLimits) -> Pairs:
    """Numbers come as they were written, booleans as `true` and `false`, a list as one pair for each item.

    Raises:
        MalformedBody, UndecodableText, TooManyFields, InvalidFieldValue: what is wrong first.
    """
    members = _parsed(UTF_8.text(body.removeprefix(BOM_UTF8)))
    if not isinstance(members, tuple):
        raise MalformedBody("it is not a JSON object")
    pairs: list[tuple[str, str]] = []
    for name, value in _scalars(members):
        if len(pairs) == limits.max_fields:
            raise TooManyFields(limits.max_fields)
        pairs.append((name, _text(name, value)))
    return tuple(pairs)


def _parsed(text: str) -> Any:  # noqa: ANN401 - JSON has no narrower type
    try:
        return _DECODER.decode(text)
    except json.JSONDecodeError as error:
        raise MalformedBody(f"it is not JSON at line {error.lineno}, column {error.colno}") from None
    except RecursionError:
        raise MalformedBody("its JSON is nested too deeply") from None


def _scalars(members: tuple[tuple[str, Any], ...]) -> Iterator[tuple[str, Any]]:
    for name, value in members:
        if name == CHARSET_FIELD:
            continue
        if isinstance(value, list):
            for item in value:
                yield name, item
        else:
            yield name, value


def _text(name: str, value: object) -> str:
    match value:
        case str():
            return with_line_feeds(value)
        case True:
            return "true"
        case False:
            return "false"
        case _:
            raise InvalidFieldValue(quoted(name))


def _refuse(_constant: str) -> NoReturn:
    raise MalformedBody("NaN and Infinity are not JSON")


# Objects become tuples of pairs, which keeps repeated names and tells them from lists; numbers stay text.
_DECODER = json.JSONDecoder(object_pairs_hook=tuple, parse_float=str, parse_int=str, parse_constant=_refuse)
