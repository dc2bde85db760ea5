"""Queue statements, one `.sql` file each."""

import re
from enum import StrEnum
from functools import cache
from importlib.resources import files

import msgspec
from sqlalchemy import BindParameter, TextClause, literal, text

_PARAMETER = re.compile(r"(?<![:\w]):(\w+)")
_COMMENT = re.compile(r"^\s*--.*\n", re.MULTILINE)


@cache
def statement(name: str) -> TextClause:
    """The statement in `sql/{name}.sql`, with `:name` parameters."""
    return text(_text_of(name))


@cache
def driver_statement(name: str) -> tuple[bytes, tuple[str, ...]]:
    """The same with `$1` and so on, as PostgreSQL takes it, and the names of these parameters in order."""
    names = dict[str, int]()
    plain = _PARAMETER.sub(
        lambda found: f"${names.setdefault(found[1], len(names) + 1)}", _COMMENT.sub("", _text_of(name))
    )
    return plain.encode(), tuple(names)


def as_json(value: object) -> str:
    """For a parameter that a statement reads as JSON: the driver's own lists take several times as long."""
    return msgspec.json.encode(value).decode()


def in_plain_text(state: StrEnum) -> BindParameter[str]:
    """A state that is no parameter: only so does the planner see that a partial index holds all of them."""
    return literal(state.value, literal_execute=True)


def _text_of(name: str) -> str:
    return files(__package__).joinpath("sql", f"{name}.sql").read_text(encoding="utf-8")
