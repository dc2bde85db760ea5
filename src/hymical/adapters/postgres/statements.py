"""Queue statements, one `.sql` file each."""

import re
from functools import cache
from importlib.resources import files

from sqlalchemy import TextClause, text

_PARAMETER = re.compile(r"(?<![:\w]):(\w+)")
_COMMENT = re.compile(r"^\s*--.*\n", re.MULTILINE)
_MARGIN = re.compile(r"\s+")


@cache
def statement(name: str) -> TextClause:
    """The statement in `sql/{name}.sql`, with `:name` parameters."""
    return text(_text_of(name))


@cache
def driver_statement(name: str) -> str:
    """The same as the driver takes it: with `%(name)s`, and without its comments and line breaks.

    The driver reads what is longer than 4,096 bytes anew at each call.
    """
    plain = _MARGIN.sub(" ", _COMMENT.sub("", _text_of(name))).replace("%", "%%")
    return _PARAMETER.sub(r"%(\1)s", plain)


def _text_of(name: str) -> str:
    return files(__package__).joinpath("sql", f"{name}.sql").read_text(encoding="utf-8")
