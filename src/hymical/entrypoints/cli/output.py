"""What a command prints: JSON as the API answers, or one line for each item."""

import json
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from pydantic import BaseModel


class _WithId(Protocol):
    @property
    def id(self) -> str: ...

    def model_dump(self, *, mode: str) -> dict[str, Any]: ...


_Row = TypeVar("_Row")
_Shown = TypeVar("_Shown", bound="BaseModel")
_Item = TypeVar("_Item", bound=_WithId)


def print_one(shown: _Shown, line: Callable[[_Shown], str], *, as_json: bool) -> None:
    print(json.dumps(shown.model_dump(mode="json")) if as_json else line(shown))


def print_fields(shown: "BaseModel", *, as_json: bool) -> None:
    """A line for each field that says something."""
    content = shown.model_dump(mode="json")
    if as_json:
        print(json.dumps(content))
        return
    for name, value in content.items():
        if value not in (None, {}):
            print(f"{name}: {value if isinstance(value, str) else json.dumps(value)}")


def print_rows(
    found: Sequence[_Row],
    shown: Callable[[_Row], _Item],
    line: Callable[[_Item], str],
    *,
    limit: int,
    as_json: bool,
) -> None:
    """A page out of `limit + 1` rows: one more than fits says that there is another page."""
    items = [shown(row) for row in found[:limit]]
    print_page(items, items[-1].id if len(found) > limit else None, line, as_json=as_json)


def print_page(
    items: Sequence[_Item], next_cursor: str | None, line: Callable[[_Item], str], *, as_json: bool
) -> None:
    if as_json:
        print(
            json.dumps(
                {"items": [item.model_dump(mode="json") for item in items], "next_cursor": next_cursor}
            )
        )
        return
    for item in items:
        print(line(item))
    if next_cursor is not None:
        print(f"there are more: --cursor {next_cursor}", file=sys.stderr)


def print_deleted(id: str, verb: str, *, as_json: bool) -> None:
    """What the API answers with nothing."""
    print(json.dumps({"id": id, verb: True}) if as_json else f"{id} is {verb}")
