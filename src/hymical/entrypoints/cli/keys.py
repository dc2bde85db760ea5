"""`hymical keys`: keys to the management API."""

import json
from datetime import timedelta

import click

from hymical.domain.ids import KeyId
from hymical.domain.instants import rfc3339
from hymical.domain.keys import Key
from hymical.entrypoints.cli.outcome import with_container


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
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def create(name: str, expires_in: timedelta | None, *, as_json: bool) -> None:
    """Make a key and print it; it is shown this once."""
    key, text = with_container(lambda container: container.create_key()(name, expires=expires_in))
    if as_json:
        print(json.dumps(_shown(key) | {"key": text.reveal()}))
    else:
        print(text.reveal())


@keys.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_(*, as_json: bool) -> None:
    """List keys, the oldest first."""
    found = with_container(lambda container: container.list_keys()())
    if as_json:
        print(json.dumps([_shown(key) for key in found]))
        return
    for key in found:
        print(f"{key.id}  {rfc3339(key.created_at)}  {_until(key):<33}  {key.name}")


@keys.command()
@click.argument("key_id", metavar="ID")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def revoke(key_id: str, *, as_json: bool) -> None:
    """End a key at once."""
    key = with_container(lambda container: container.revoke_key()(KeyId(key_id)))
    print(json.dumps(_shown(key)) if as_json else f"{key.id} is revoked")


def _until(key: Key) -> str:
    if key.revoked_at is not None:
        return "revoked"
    return f"until {rfc3339(key.expires_at)}" if key.expires_at else "valid"


def _shown(key: Key) -> dict[str, str | None]:
    return {
        "id": key.id,
        "name": key.name,
        "created_at": rfc3339(key.created_at),
        "expires_at": rfc3339(key.expires_at) if key.expires_at else None,
        "revoked_at": rfc3339(key.revoked_at) if key.revoked_at else None,
    }
