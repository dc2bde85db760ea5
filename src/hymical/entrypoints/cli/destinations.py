"""`hymical destinations`: where the submissions of a form go."""

from datetime import datetime
from typing import TYPE_CHECKING

import click

from hymical.domain.destinations import (
    DEFAULT_MAX_IN_FLIGHT,
    DestinationChange,
    DestinationState,
    Headers,
)
from hymical.domain.errors import NotFound
from hymical.domain.ids import OPERATOR, DestinationId, FormId
from hymical.domain.signing import Secret
from hymical.entrypoints.cli import deliveries, jobs
from hymical.entrypoints.cli.options import an_id, an_instant, as_json, between, paged
from hymical.entrypoints.cli.outcome import with_container
from hymical.entrypoints.cli.output import print_deleted, print_fields, print_one, print_rows

if TYPE_CHECKING:
    from hymical.domain.destinations import Destination
    from hymical.entrypoints.api.schemas.destinations import DestinationOut, DestinationWithSecret
    from hymical.entrypoints.api.schemas.jobs import EnqueuedOut
    from hymical.entrypoints.bootstrap.container import Container

_form = click.argument("form_id", metavar="FORM", type=an_id)
_id = click.argument("destination_id", metavar="ID", type=an_id)


def _headers(_context: click.Context, _parameter: click.Parameter, lines: tuple[str, ...]) -> Headers:
    parts = [line.partition(":") for line in lines]
    if not all(colon for _, colon, _ in parts):
        raise click.BadParameter("must be written as 'Name: value'.")
    return tuple((name.strip(), Secret(value.strip())) for name, _, value in parts)


_header = click.option(
    "--header",
    "headers",
    multiple=True,
    callback=_headers,
    metavar="'NAME: VALUE'",
    help="Sent with every webhook, its value never shown again; may be repeated.",
)


@click.group()
def destinations() -> None:
    """Say where the submissions of a form go."""


@destinations.command()
@_form
@click.option("--url", required=True, help="Where webhooks go: https://…")
@_header
@click.option(
    "--max-in-flight", default=DEFAULT_MAX_IN_FLIGHT, show_default=True, help="Requests at one time."
)
@as_json
def create(form_id: str, url: str, headers: Headers, max_in_flight: int, *, as_json: bool) -> None:
    """Add a destination to a form. The secret that verifies its webhooks is printed this once."""
    destination = with_container(
        lambda container: container.create_destination()(
            FormId(form_id), url, headers=headers, max_in_flight=max_in_flight
        )
    )
    _print_with_secret(destination, destination.secrets[-1].value, as_json=as_json)


@destinations.command("list")
@_form
@paged
@as_json
def list_(form_id: str, limit: int, cursor: str | None, *, as_json: bool) -> None:
    """List a form's destinations, by id."""
    found = with_container(
        lambda container: container.list_destinations()(FormId(form_id), after=cursor, limit=limit + 1)
    )
    print_rows(found, _shown, _line, limit=limit, as_json=as_json)


@destinations.command()
@_id
@as_json
def show(destination_id: str, *, as_json: bool) -> None:
    """Show a destination, without its secrets."""
    found = with_container(lambda container: container.show_destination()(_of_a_form(destination_id)))
    print_fields(_shown(found), as_json=as_json)


@destinations.command()
@_id
@click.option("--url", help="Where webhooks go: https://…")
@_header
@click.option("--no-headers", is_flag=True, help="Send no headers of its own any more.")
@click.option("--max-in-flight", type=int, help="Requests at one time.")
@click.option(
    "--state",
    type=click.Choice([one.value for one in DestinationState]),
    help="paused: deliveries wait; disabled: what waits, and what comes, fails at once.",
)
@as_json
def change(
    destination_id: str,
    url: str | None,
    headers: Headers,
    max_in_flight: int | None,
    state: str | None,
    *,
    no_headers: bool,
    as_json: bool,
) -> None:
    """Change a destination. What is left out stays as it is; headers replace all there were."""

    async def changed(container: "Container") -> "Destination":
        wanted = DestinationChange(
            url=url,
            headers=() if no_headers else headers or None,
            max_in_flight=max_in_flight,
            state=DestinationState(state) if state else None,
        )
        return await container.change_destination()(_of_a_form(destination_id), wanted)

    print_one(_shown(with_container(changed)), _line, as_json=as_json)


@destinations.command()
@_id
@as_json
def pause(destination_id: str, *, as_json: bool) -> None:
    """Let deliveries wait."""
    _set(destination_id, DestinationState.PAUSED, as_json=as_json)


@destinations.command()
@_id
@as_json
def resume(destination_id: str, *, as_json: bool) -> None:
    """Send again, paused or disabled."""
    _set(destination_id, DestinationState.ACTIVE, as_json=as_json)


@destinations.command("rotate-secret")
@_id
@click.option(
    "--previous-valid-until",
    type=an_instant,
    metavar="INSTANT",
    help="Until when earlier secrets sign, RFC 3339; 24 hours from now if left out.",
)
@as_json
def rotate_secret(destination_id: str, previous_valid_until: datetime | None, *, as_json: bool) -> None:
    """Give a destination a new secret. It is printed this once."""
    destination, secret = with_container(
        lambda container: container.rotate_secret()(
            _of_a_form(destination_id), previous_valid_until=previous_valid_until
        )
    )
    _print_with_secret(destination, secret, as_json=as_json)


@destinations.command()
@_id
@as_json
def test(destination_id: str, *, as_json: bool) -> None:
    """Queue a destination.test webhook. A worker sends it."""
    view = with_container(lambda container: container.send_test()(_of_a_form(destination_id)))
    print_one(deliveries.shown(view), deliveries.line, as_json=as_json)


@destinations.command()
@_id
@between("received")
@as_json
def backfill(
    destination_id: str, received_after: datetime | None, received_before: datetime | None, *, as_json: bool
) -> None:
    """Send it the past submissions of its form. A worker of the queue maintenance does it."""
    from hymical.entrypoints.api.schemas.bulk import BackfillIn  # noqa: PLC0415
    from hymical.entrypoints.api.schemas.jobs import EnqueuedOut  # noqa: PLC0415

    async def enqueued(container: "Container") -> "EnqueuedOut":
        destination = await container.show_destination()(_of_a_form(destination_id))
        asked = BackfillIn.model_construct(received_after=received_after, received_before=received_before)
        queued = await container.enqueue_job()(
            "backfill_destination",
            asked.payload(destination.id),
            unique_key=asked.unique_key(destination.id),
        )
        job = await container.show_job()(queued.job_id)
        return EnqueuedOut.showing(job, duplicate=queued.duplicate)

    print_one(with_container(enqueued), jobs.line, as_json=as_json)


@destinations.command()
@_id
@as_json
def delete(destination_id: str, *, as_json: bool) -> None:
    """Delete a destination; what waits for it fails."""
    with_container(lambda container: container.delete_destination()(_of_a_form(destination_id)))
    print_deleted(destination_id, "deleted", as_json=as_json)


def _of_a_form(text: str) -> DestinationId:
    """Raises `NotFound` for the operator's, which belongs to the settings."""
    if text == OPERATOR:
        raise NotFound("destination", text)
    return DestinationId(text)


def _set(destination_id: str, state: DestinationState, *, as_json: bool) -> None:
    changed = with_container(
        lambda container: container.change_destination()(
            _of_a_form(destination_id), DestinationChange(state=state)
        )
    )
    print_one(_shown(changed), _line, as_json=as_json)


def _print_with_secret(destination: "Destination", secret: Secret, *, as_json: bool) -> None:
    from hymical.entrypoints.api.schemas.destinations import DestinationWithSecret  # noqa: PLC0415

    print_one(DestinationWithSecret.showing(destination, secret), _line_with_secret, as_json=as_json)


def _line(destination: "DestinationOut") -> str:
    return f"{destination.id}  {destination.state:<8}  {destination.url}"


def _line_with_secret(destination: "DestinationWithSecret") -> str:
    return f"{_line(destination)}  {destination.secret}"


def _shown(destination: "Destination") -> "DestinationOut":
    from hymical.entrypoints.api.schemas.destinations import DestinationOut  # noqa: PLC0415

    return DestinationOut.of(destination)
