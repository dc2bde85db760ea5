"""`hymical submissions`: what was posted."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import IO, TYPE_CHECKING

import click

from hymical.domain.exports import ExportFormat, ExportStyle
from hymical.domain.forms import is_storable
from hymical.domain.ids import FormId, SubmissionId
from hymical.domain.instants import rfc3339
from hymical.entrypoints.cli.options import an_id, as_json, between, of, paged
from hymical.entrypoints.cli.outcome import fail, with_container
from hymical.entrypoints.cli.output import print_deleted, print_fields, print_page

if TYPE_CHECKING:
    from hymical.domain.forms import Submission
    from hymical.entrypoints.api.schemas.forms import SubmissionOut, SubmissionWithFields
    from hymical.entrypoints.bootstrap.container import Container
    from hymical.ports.forms import SubmissionFilter, SubmissionPage

_id = click.argument("submission_id", metavar="ID", type=an_id)
_spam = click.option("--spam", is_flag=True, help="Those kept as spam, instead of the others.")


def _searched(_context: click.Context, _parameter: click.Parameter, text: str | None) -> str | None:
    if text is not None and not is_storable(text):
        raise click.BadParameter("must be text in UTF-8.")
    return text


@click.group()
def submissions() -> None:
    """List, show, export and delete submissions."""


@submissions.command("list")
@of("form")
@between("received")
@click.option("-q", "--text", callback=_searched, help="In a name or a value of them, capital or not.")
@_spam
@paged
@as_json
def list_(
    form_id: str | None,
    received_after: datetime | None,
    received_before: datetime | None,
    text: str | None,
    limit: int,
    cursor: str | None,
    *,
    spam: bool,
    as_json: bool,
) -> None:
    """List submissions, the newest first. A page looks at 2,000 at most, and may hold fewer than are asked for."""
    from hymical.entrypoints.api.schemas.forms import (  # noqa: PLC0415
        SubmissionOut,
        cursor_of,
        place_of,
    )

    async def found(container: "Container") -> "SubmissionPage":
        which = _filter(form_id, received_after, received_before, spam=spam, text=text)
        return await container.list_submissions()(which, behind=place_of(cursor), limit=limit)

    page = with_container(found)
    items = [SubmissionOut.of(one) for one in page.submissions]
    print_page(items, cursor_of(page.end), _line, as_json=as_json)


@submissions.command()
@_id
@as_json
def show(submission_id: str, *, as_json: bool) -> None:
    """Show a submission with its fields."""
    found = with_container(lambda container: container.show_submission()(SubmissionId(submission_id)))
    print_fields(_shown(found), as_json=as_json)


@submissions.command()
@_id
@as_json
def delete(submission_id: str, *, as_json: bool) -> None:
    """Erase a submission from wherever it is; what waits of it fails."""
    with_container(lambda container: container.erase_submission()(SubmissionId(submission_id)))
    print_deleted(submission_id, "deleted", as_json=as_json)


@submissions.command("not-spam")
@_id
@as_json
def not_spam(submission_id: str, *, as_json: bool) -> None:
    """Take a submission out of the spam, and deliver it."""
    found = with_container(lambda container: container.mark_good()(SubmissionId(submission_id)))
    print_fields(_shown(found), as_json=as_json)


@submissions.command()
@click.option(
    "--format",
    "kind",
    type=click.Choice([one.value for one in ExportFormat]),
    default="json",
    show_default=True,
)
@of("form")
@between("received")
@_spam
@click.option("--bom", is_flag=True, help="A byte order mark in front of CSV, for Excel.")
@click.option(
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="A file, there once it is whole; without it, standard output.",
)
def export(
    kind: str,
    form_id: str | None,
    received_after: datetime | None,
    received_before: datetime | None,
    output: Path | None,
    *,
    spam: bool,
    bom: bool,
) -> None:
    """Export submissions, the oldest first, form by form."""

    async def exported(container: "Container") -> None:
        which = _filter(form_id, received_after, received_before, spam=spam)
        style = ExportStyle(format=ExportFormat(kind), bom=bom)
        pieces = await container.stream_submissions()(which, style)
        with _open(output) as file:
            async for piece in pieces:
                file.write(piece)

    try:
        with_container(exported)
    except OSError as error:
        if output is None:
            raise
        fail(f"{output} cannot be written: {(error.strerror or str(error)).lower()}")


@contextmanager
def _open(path: Path | None) -> Iterator[IO[bytes]]:
    """Written beside the file first, so that one which ends too early is never taken for a whole one."""
    if path is None:
        yield sys.stdout.buffer
        return
    # readable by its owner only: it holds what people posted
    with NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
        part = Path(file.name)
        try:
            yield file
            file.flush()
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)


def _filter(
    form_id: str | None,
    received_after: datetime | None,
    received_before: datetime | None,
    *,
    spam: bool,
    text: str | None = None,
) -> "SubmissionFilter":
    from hymical.ports.forms import SubmissionFilter  # noqa: PLC0415

    return SubmissionFilter(
        form_id=FormId(form_id) if form_id else None,
        spam=spam,
        received_after=received_after,
        received_before=received_before,
        text=text,
    )


def _line(submission: "SubmissionOut") -> str:
    spam = "  spam" if submission.is_spam else ""
    fields = f"{submission.field_count} field{'' if submission.field_count == 1 else 's'}"
    return f"{submission.id}  {rfc3339(submission.received_at)}  {submission.form_id}  {fields}{spam}"


def _shown(submission: "Submission") -> "SubmissionWithFields":
    from hymical.entrypoints.api.schemas.forms import SubmissionWithFields  # noqa: PLC0415

    return SubmissionWithFields.of(submission)
