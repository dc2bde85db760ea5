"""Pages of a list, and the ids that a request may name."""

import re
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Annotated, Generic, TypeVar

from litestar.params import Parameter
from pydantic import BaseModel

from hymical.domain.errors import InvalidValue, NotFound
from hymical.domain.forms import is_storable
from hymical.domain.instants import from_rfc3339

Item = TypeVar("Item", bound=BaseModel)
Row = TypeVar("Row")

Limit = Annotated[int, Parameter(ge=1, le=100, description="How many items at most.")]
Cursor = Annotated[
    str | None, Parameter(description="The `next_cursor` of the page before; without it, the first page.")
]

_ID = re.compile(r"[a-z0-9_-]{1,64}", re.ASCII)


class Page(BaseModel, Generic[Item]):
    items: list[Item]
    next_cursor: str | None


def page_of(
    found: Sequence[Row], *, limit: int, shown: Callable[[Row], Item], id_of: Callable[[Row], str]
) -> Page[Item]:
    """A page out of `limit + 1` rows that were asked for: one more than fits says that there is another page."""
    kept = found[:limit]
    return Page(
        items=[shown(row) for row in kept], next_cursor=id_of(kept[-1]) if len(found) > limit else None
    )


def checked_cursor(cursor: str | None) -> str | None:
    """Raises `InvalidValue` for what was never given out as a cursor."""
    if cursor is not None and _ID.fullmatch(cursor) is None:
        raise InvalidValue("cursor", "must be the next_cursor of an earlier page")
    return cursor


def checked_id(kind: str, text: str) -> str:
    """Raises `NotFound` for text that cannot be an id, so that the database is not asked about it."""
    if _ID.fullmatch(text) is None:
        raise NotFound(kind, text)
    return text


def checked_filter(name: str, text: str | None) -> str | None:
    """Raises `InvalidValue` for a filter that cannot be an id."""
    if text is not None and _ID.fullmatch(text) is None:
        raise InvalidValue(name, "must be an id")
    return text


def checked_instant(name: str, text: str | None) -> datetime | None:
    """Raises `InvalidValue` for what is no instant."""
    if text is None:
        return None
    try:
        return from_rfc3339(text)
    except ValueError:
        raise InvalidValue(
            name, "must be RFC 3339, such as 2026-11-29T12:00:00Z; in a query a + is written %2B"
        ) from None


def checked_text(name: str, text: str | None) -> str | None:
    """Raises `InvalidValue` for text that nothing stored can hold."""
    if text is not None and not is_storable(text):
        raise InvalidValue(name, "must not hold NUL or lone surrogates")
    return text
