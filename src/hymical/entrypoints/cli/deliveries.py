"""`hymical deliveries`: what is owed to destinations, its history, and replay."""

from datetime import datetime
from typing import TYPE_CHECKING

import click

from hymical.domain.deliveries import DeliveryState, Reason
from hymical.domain.ids import DeliveryId, DestinationId, FormId, SubmissionId
from hymical.domain.instants import rfc3339
from hymical.entrypoints.cli import jobs
from hymical.entrypoints.cli.options import an_id, as_json, between, of, paged
from hymical.entrypoints.cli.outcome import with_container
from hymical.entrypoints.cli.output import print_fields, print_one, print_rows

if TYPE_CHECKING:
    from hymical.entrypoints.api.schemas.bulk import ReplayIn
    from hymical.entrypoints.api.schemas.deliveries import AttemptOut, DeliveryOut
    from hymical.entrypoints.api.schemas.jobs import EnqueuedOut
    from hymical.entrypoints.bootstrap.container import Container
    from hymical.ports.deliveries import DeliveryView

_id = click.argument("delivery_id", metavar="ID", type=an_id)


@click.group()
def deliveries() -> None:
    """List, show, replay and resend deliveries."""


@deliveries.command("list")
@of("form")
@of("destination")
@of("submission")
@click.option(
    "--state", type=click.Choice([one.value for one in DeliveryState]), help="Only those in a state."
)
@paged
@as_json
def list_(
    form_id: str | None,
    destination_id: str | None,
    submission_id: str | None,
    state: str | None,
    limit: int,
    cursor: str | None,
    *,
    as_json: bool,
) -> None:
    """List deliveries, the newest first."""
    from hymical.ports.deliveries import DeliveryFilter  # noqa: PLC0415

    which = DeliveryFilter(
        form_id=FormId(form_id) if form_id else None,
        destination_id=DestinationId(destination_id) if destination_id else None,
        submission_id=SubmissionId(submission_id) if submission_id else None,
        state=DeliveryState(state) if state else None,
    )
    found = with_container(
        lambda container: container.list_deliveries()(which, before=cursor, limit=limit + 1)
    )
    print_rows(found, shown, line, limit=limit, as_json=as_json)


@deliveries.command()
@_id
@as_json
def show(delivery_id: str, *, as_json: bool) -> None:
    """Show a delivery with its attempts, and say what happens next."""
    from hymical.entrypoints.api.schemas.deliveries import DeliveryOut, DeliveryWithAttempts  # noqa: PLC0415

    found = with_container(lambda container: container.show_delivery()(DeliveryId(delivery_id)))
    answer = DeliveryWithAttempts.with_attempts(*found)
    if as_json:
        print_fields(answer, as_json=True)
        return
    print_fields(DeliveryOut.of(found[0]), as_json=False)
    print(f"explanation: {answer.explanation}")
    for attempt in answer.attempts:
        print(_line_of(attempt))


@deliveries.command()
@click.argument("delivery_id", metavar="[ID]", type=an_id, required=False)
@click.option("--all", "everything", is_flag=True, help="Everything that failed.")
@of("form")
@of("destination")
@of("submission")
@click.option(
    "--reason", type=click.Choice([one.value for one in Reason]), help="Only those that failed for a reason."
)
@between("failed")
@as_json
def replay(
    delivery_id: str | None,
    reason: str | None,
    *,
    everything: bool,
    as_json: bool,
    **which: str | datetime | None,
) -> None:
    """Send a failed delivery again, or many. What a filter chooses is sent by a job, on the queue maintenance."""
    from hymical.entrypoints.api.schemas.bulk import ReplayIn  # noqa: PLC0415

    given = {**which, "reason": reason and Reason(reason)}
    filtered = everything or any(value is not None for value in given.values())
    if filtered == (delivery_id is not None):
        raise click.UsageError("Name a delivery, or choose by filters, or --all; not more than one of these.")
    if delivery_id is None:
        asked = ReplayIn.model_construct(**given)  # type: ignore[arg-type]
        print_one(with_container(lambda container: _replayed(container, asked)), jobs.line, as_json=as_json)
        return
    one = DeliveryId(delivery_id)
    print_one(
        shown(with_container(lambda container: container.replay_delivery()(one))), line, as_json=as_json
    )


@deliveries.command()
@_id
@as_json
def resend(delivery_id: str, *, as_json: bool) -> None:
    """Send its message once more, as a new delivery."""
    view = with_container(lambda container: container.resend_delivery()(DeliveryId(delivery_id)))
    print_one(shown(view), line, as_json=as_json)


async def _replayed(container: "Container", asked: "ReplayIn") -> "EnqueuedOut":
    from hymical.entrypoints.api.schemas.jobs import EnqueuedOut  # noqa: PLC0415

    payload = asked.payload()
    queued = await container.enqueue_job()("replay_deliveries", payload, unique_key=asked.unique_key())
    return EnqueuedOut.showing(await container.show_job()(queued.job_id), duplicate=queued.duplicate)


def line(delivery: "DeliveryOut") -> str:
    if delivery.failure_reason is not None:
        then = f"  {delivery.failure_reason}"
    elif delivery.next_attempt_at is not None:
        then = f"  next {rfc3339(delivery.next_attempt_at)}"
    else:
        then = ""
    attempts = f"{delivery.attempt_count} attempt{'' if delivery.attempt_count == 1 else 's'}"
    return f"{delivery.id}  {delivery.state:<10}  {attempts}  {delivery.destination_url}{then}"


def _line_of(attempt: "AttemptOut") -> str:
    status = f"  {attempt.response_status}" if attempt.response_status is not None else ""
    took = f"  {attempt.duration_ms} ms" if attempt.duration_ms is not None else ""
    error = f"  {attempt.error}" if attempt.error else ""
    return f"attempt {attempt.number}: {rfc3339(attempt.started_at)}  {attempt.outcome}{status}{took}{error}"


def shown(view: "DeliveryView") -> "DeliveryOut":
    from hymical.entrypoints.api.schemas.deliveries import DeliveryOut  # noqa: PLC0415

    return DeliveryOut.of(view)
