"""Queue statements, one `.sql` file each."""

from functools import cache
from importlib.resources import files

from sqlalchemy import TextClause, text


@cache
def statement(name: str) -> TextClause:
    """The statement in `sql/{name}.sql`, with `:name` parameters."""
    return text(files(__package__).joinpath("sql", f"{name}.sql").read_text(encoding="utf-8"))
