"""`hymical forms`: what is posted to."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import click

from hymical.domain.ids import FormId
from hymical.entrypoints.cli.options import a_json_object, an_id, as_json, paged
from hymical.entrypoints.cli.outcome import validated, with_container
from hymical.entrypoints.cli.output import print_deleted, print_fields, print_one, print_rows

if TYPE_CHECKING:
    from hymical.domain.forms import Form
    from hymical.entrypoints.api.schemas.forms import FormOut

_Command = TypeVar("_Command", bound=Callable[..., Any])
_NULLABLE = ("redirect_url", "honeypot_field", "duplicate_window_seconds")

_id = click.argument("form_id", metavar="ID", type=an_id)


def _seconds(_context: click.Context, _parameter: click.Parameter, value: str | None) -> int | str | None:
    if not value:
        return value
    if not (value.isascii() and value.isdecimal()):
        raise click.BadParameter("must be a whole number of seconds, or empty for the setting's.")
    return int(value)


def _rules(command: _Command) -> _Command:
    options = [
        click.option("--redirect-url", help="Where a browser goes on after a post; empty: a thank-you page."),
        click.option(
            "--allowed-origin",
            "allowed_origins",
            multiple=True,
            help="A page that may post, as https://example.com; may be repeated.",
        ),
        click.option("--any-origin", is_flag=True, help="Any page may post."),
        click.option("--honeypot-field", help="A field that people do not see, beside _gotcha; empty: none."),
        click.option(
            "--duplicate-window-seconds",
            callback=_seconds,
            help="Within which an identical post is a double click; 0 is off, empty takes the setting.",
        ),
        click.option(
            "--limits",
            type=a_json_object,
            metavar="JSON",
            help='All of its own, as {"max_fields": 10}.',
        ),
    ]
    for option in reversed(options):
        command = option(command)
    return command


@click.group()
def forms() -> None:
    """Create, list, show, change, close, open and delete forms."""


@forms.command()
@_id
@click.option("--name", required=True, help="For people, 1 to 200 characters.")
@_rules
@as_json
def create(form_id: str, *, as_json: bool, **rules: object) -> None:
    """Open a public address for posts. ID is chosen by you, and never changes."""
    from hymical.entrypoints.api.schemas.forms import FormIn  # noqa: PLC0415

    asked = validated(FormIn, {"id": form_id, **_asked(rules)})
    _print(
        with_container(lambda container: container.create_form()(asked.to_domain())),
        as_json=as_json,
    )


@forms.command("list")
@paged
@as_json
def list_(limit: int, cursor: str | None, *, as_json: bool) -> None:
    """List forms, by id."""
    found = with_container(lambda container: container.list_forms()(after=cursor, limit=limit + 1))
    print_rows(found, _shown, _line, limit=limit, as_json=as_json)


@forms.command()
@_id
@as_json
def show(form_id: str, *, as_json: bool) -> None:
    """Show a form with its rules."""
    form = with_container(lambda container: container.show_form()(FormId(form_id)))
    print_fields(_shown(form), as_json=as_json)


@forms.command()
@_id
@click.option("--name", help="For people, 1 to 200 characters.")
@_rules
@as_json
def change(form_id: str, *, as_json: bool, **rules: object) -> None:
    """Change a form; what is left out stays as it is."""
    _change(form_id, _asked(rules), as_json=as_json)


@forms.command()
@_id
@as_json
def close(form_id: str, *, as_json: bool) -> None:
    """Accept no more posts; what was posted is still delivered."""
    _change(form_id, {"is_active": False}, as_json=as_json)


@forms.command("open")
@_id
@as_json
def open_(form_id: str, *, as_json: bool) -> None:
    """Accept posts again."""
    _change(form_id, {"is_active": True}, as_json=as_json)


@forms.command()
@_id
@as_json
def delete(form_id: str, *, as_json: bool) -> None:
    """Delete a form that holds no submissions, with its destinations."""
    with_container(lambda container: container.delete_form()(FormId(form_id)))
    print_deleted(form_id, "deleted", as_json=as_json)


def _asked(rules: Mapping[str, object]) -> dict[str, object]:
    """Only what was given, as the API is given it."""
    given = {name: value for name, value in rules.items() if value is not None}
    if given.pop("any_origin"):
        given["allowed_origins"] = []
    elif not given["allowed_origins"]:
        del given["allowed_origins"]
    else:
        given["allowed_origins"] = list(rules["allowed_origins"])  # type: ignore[call-overload]
    return {name: None if name in _NULLABLE and value == "" else value for name, value in given.items()}


def _change(form_id: str, given: dict[str, object], *, as_json: bool) -> None:
    from hymical.entrypoints.api.schemas.forms import FormPatch  # noqa: PLC0415

    patch = validated(FormPatch, given)
    _print(
        with_container(lambda container: container.change_form()(FormId(form_id), patch.changes())),
        as_json=as_json,
    )


def _print(form: "Form", *, as_json: bool) -> None:
    print_one(_shown(form), _line, as_json=as_json)


def _line(form: "FormOut") -> str:
    return f"{form.id}  {'open' if form.is_active else 'closed'}  {form.name}"


def _shown(form: "Form") -> "FormOut":
    from hymical.entrypoints.api.schemas.forms import FormOut  # noqa: PLC0415

    return FormOut.of(form)
