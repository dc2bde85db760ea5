"""Options that many commands have, and the kinds of values that they take."""

import json
import re
from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeVar

import click

from hymical.domain.instants import from_rfc3339

_ID = re.compile(r"[a-z0-9_-]{1,64}", re.ASCII)

_Command = TypeVar("_Command", bound=Callable[..., Any])

as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON, as the API answers.")


def an_id(text: str) -> str:
    if _ID.fullmatch(text) is None:
        raise click.BadParameter(f"{text!r} cannot be one: they are of a-z, 0-9, - and _.")
    return text


def an_instant(text: str) -> datetime:
    try:
        return from_rfc3339(text)
    except ValueError:
        raise click.BadParameter("must be RFC 3339, such as 2026-11-29T12:00:00Z.") from None


def a_json_object(text: str) -> dict[str, object]:
    try:
        given = json.loads(text)
    except ValueError:
        given = None
    if not isinstance(given, dict):
        raise click.BadParameter("""must be an object of JSON, such as '{"form_id": "contact"}'""")
    return given


def paged(command: _Command) -> _Command:
    """`limit` and `cursor`, as the API takes them."""
    limit = click.option(
        "--limit", default=50, show_default=True, type=click.IntRange(1, 1_000), help="How many."
    )
    cursor = click.option(
        "--cursor",
        type=an_id,
        metavar="CURSOR",
        help="The next_cursor of the page before; without it, the first page.",
    )
    return limit(cursor(command))


def between(verb: str) -> Callable[[_Command], _Command]:
    """`{verb}_after` and `{verb}_before`; both instants are left out."""
    after = click.option(
        f"--{verb}-after", type=an_instant, metavar="INSTANT", help="Only later ones, RFC 3339."
    )
    before = click.option(
        f"--{verb}-before", type=an_instant, metavar="INSTANT", help="Only earlier ones, RFC 3339."
    )
    return lambda command: after(before(command))


def of(kind: str) -> Callable[[_Command], _Command]:
    """`{kind}_id`, to choose only what belongs to one."""
    return click.option(f"--{kind}", f"{kind}_id", type=an_id, metavar="ID", help=f"Only those of a {kind}.")
