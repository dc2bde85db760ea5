"""Files of submissions: written by a job and fetched later, or streamed at once."""

from collections.abc import AsyncIterator
from typing import Annotated

from litestar import Router, get, post
from litestar.di import NamedDependency
from litestar.openapi import ResponseSpec
from litestar.params import Parameter, QueryParameter
from litestar.response import Stream

from hymical.application.exports import OpenExportFile, StartExport, StreamSubmissions
from hymical.domain.errors import InvalidValue
from hymical.domain.exports import ExportFormat, ExportStyle
from hymical.domain.ids import FormId, JobId
from hymical.entrypoints.api.forms import ReceivedAfter, ReceivedBefore
from hymical.entrypoints.api.pages import checked_filter, checked_id, checked_instant
from hymical.entrypoints.api.provide import use_cases
from hymical.entrypoints.api.schemas.exports import ExportIn
from hymical.entrypoints.api.schemas.jobs import JobOut
from hymical.ports.forms import SubmissionFilter

_FILE = {200: ResponseSpec(bytes, description="The file.", generate_examples=False)}


@post(
    "/exports",
    status_code=202,
    summary="Write a form's submissions to a file, by a job",
    description="Follow the job; once it is completed, fetch /exports/{job_id}/file.",
)
async def start_export(data: ExportIn, start_export: NamedDependency[StartExport]) -> JobOut:
    return JobOut.of(await start_export(data.to_domain()))


@get(
    "/exports/{job_id:str}/file",
    summary="Fetch the file of an export that is completed",
    description="It is kept for FORMS_EXPORT_RETENTION_HOURS, and removed when a submission in it is erased: 410.",
    responses=_FILE,
)
async def fetch_file(job_id: str, open_export_file: NamedDependency[OpenExportFile]) -> Stream:
    file = await open_export_file(JobId(checked_id("export", job_id)))
    # with its length known, a file that ends too early is not taken for a whole one
    length = {"content-length": str(file.size)}
    return _download(file.pieces, file.format, file.name, length)


@get(
    "/submissions/export",
    summary="Export submissions at once",
    description="The oldest first, form by form. For many of them POST /exports, which survives an interruption.",
    responses=_FILE,
)
async def export_submissions(
    stream_submissions: NamedDependency[StreamSubmissions],
    # an enumeration here would be refused in the framework's words
    file_format: Annotated[
        str, QueryParameter(name="format", schema_extra={"enum": [*ExportFormat]})
    ] = "json",
    form_id: str | None = None,
    *,
    spam: Annotated[bool, Parameter(description="Those kept as spam, instead of the others.")] = False,
    received_after: ReceivedAfter = None,
    received_before: ReceivedBefore = None,
    bom: Annotated[bool, Parameter(description="A byte order mark in front of CSV, for Excel.")] = False,
) -> Stream:
    of_form = checked_filter("form_id", form_id)
    which = SubmissionFilter(
        form_id=None if of_form is None else FormId(of_form),
        spam=spam,
        received_after=checked_instant("received_after", received_after),
        received_before=checked_instant("received_before", received_before),
    )
    style = ExportStyle(format=_checked_format(file_format), bom=bom)
    pieces = await stream_submissions(which, style)
    return _download(pieces, style.format, f"{of_form or 'submissions'}.{style.format}", {})


def _checked_format(text: str) -> ExportFormat:
    try:
        return ExportFormat(text)
    except ValueError:
        raise InvalidValue("format", f"must be one of {', '.join(ExportFormat)}") from None


def _download(pieces: AsyncIterator[bytes], kind: ExportFormat, name: str, headers: dict[str, str]) -> Stream:
    return Stream(
        pieces,
        media_type=kind.media_type,
        # ids of forms need no quoting
        headers={
            "content-disposition": f'attachment; filename="{name}"',
            "cache-control": "no-store",
            "x-content-type-options": "nosniff",
            **headers,
        },
    )


management = Router(
    "/",
    route_handlers=[start_export, fetch_file, export_submissions],
    dependencies=use_cases("start_export", "open_export_file", "stream_submissions"),
)
