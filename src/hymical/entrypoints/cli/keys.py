"""`hymical keys`: keys to the management API."""

from datetime import timedelta
from typing import TYPE_CHECKING

import click

from hymical.domain.ids import KeyId
from hymical.domain.instants import rfc3339
from hymical.entrypoints.cli.options import an_id, as_json, paged
from hymical.entrypoints.cli.outcome import with_container
from hymical.entrypoints.cli.output import print_one, print_rows

if TYPE_CHECKING:
    from hymical.domain.keys import Key
    from hymical.entrypoints.api.schemas.keys import KeyOut


def _duration(_context: click.Context, _parameter: click.Parameter, value: str | None) -> timedelta | None:
    # settings take their time to import, and help is to be quick
    from hymical.entrypoints.bootstrap.settings import parse_duration  # noqa: PLC0415

    try:
        return None if value is None else parse_duration(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@click.group()
def keys() -> None:
    """Make, list and revoke keys to the management API."""


@keys.command()
@click.option("--name", required=True, help="What or whom the key is for.")
@click.option(
    "--expires-in", callback=_duration, help="How long it opens the API: 90d, 12h. Without it, until revoked."
)
@as_json
def create(name: str, expires_in: timedelta | None, *, as_json: bool) -> None:
    """Make a key and print it; it is shown this once."""
    from hymical.entrypoints.api.schemas.keys import KeyWithText  # noqa: PLC0415

    key, text = with_container(lambda container: container.create_key()(name, expires=expires_in))
    print_one(KeyWithText.showing(key, text), lambda made: made.key, as_json=as_json)


@keys.command("list")
@paged
@as_json
def list_(limit: int, cursor: str | None, *, as_json: bool) -> None:
    """List keys, the oldest first."""
    found = with_container(lambda container: container.list_keys()(after=cursor, limit=limit + 1))
    print_rows(found, _shown, _line, limit=limit, as_json=as_json)


@keys.command()
@click.argument("key_id", metavar="ID", type=an_id)
@as_json
def revoke(key_id: str, *, as_json: bool) -> None:
    """End a key at once."""
    key = with_container(lambda container: container.revoke_key()(KeyId(key_id)))
    print_one(_shown(key), lambda ended: f"{ended.id} is revoked", as_json=as_json)


def _line(key: "KeyOut") -> str:
    if key.revoked_at is not None:
        until = "revoked"
    else:
        until = f"until {rfc3339(key.expires_at)}" if key.expires_at else "valid"
    return f"{key.id}  {rfc3339(key.created_at)}  {until:<33}  {key.name}"


def _shown(key: "Key") -> "KeyOut":
    from hymical.entrypoints.api.schemas.keys import KeyOut  # noqa: PLC0415

    return KeyOut.of(key)
