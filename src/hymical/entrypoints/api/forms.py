"""The public intake, and the management of forms and submissions."""

import json
from typing import Any

from litestar import MediaType, Request, Response, Router, delete, get, post
from litestar.datastructures import State
from litestar.di import NamedDependency
from litestar.openapi import ResponseSpec

from hymical.application.forms import (
    CreateForm,
    EraseSubmission,
    ListForms,
    ListSubmissions,
    ShowForm,
    ShowSubmission,
)
from hymical.domain.errors import FormNotFound
from hymical.domain.forms import NewForm, PostedForm, is_form_id
from hymical.domain.ids import FormId, SubmissionId
from hymical.domain.instants import rfc3339
from hymical.entrypoints.api.bodies import read_pairs
from hymical.entrypoints.api.pages import (
    Cursor,
    Limit,
    Page,
    checked_cursor,
    checked_filter,
    checked_id,
    page_of,
)
from hymical.entrypoints.api.provide import use_cases
from hymical.entrypoints.api.schemas.forms import (
    FormIn,
    FormOut,
    ReceiptOut,
    SubmissionOut,
    SubmissionWithFields,
)


@post(
    "/f/{form_id:str}",
    status_code=202,
    # the body is read as it comes, up to the limit that the settings give
    request_max_body_size=None,
    summary="Post a form",
    description="application/x-www-form-urlencoded, multipart/form-data with text fields, or application/json.",
    tags=["intake"],
    responses={202: ResponseSpec(ReceiptOut, description="Stored, and on its way to every destination.")},
)
async def submit_form(form_id: str, request: Request[Any, Any, Any], state: State) -> Response[bytes]:
    if not is_form_id(form_id):
        raise FormNotFound(form_id)
    pairs = await read_pairs(
        request.headers.get("content-type"),
        request.headers.get("content-length"),
        request.stream(),
        state.container.limits(),
    )
    receipt = await state.coalescer.accept(PostedForm(form_id=FormId(form_id), pairs=pairs))
    content = {
        "submission_id": receipt.submission_id,
        "form_id": receipt.form_id,
        "received_at": rfc3339(receipt.received_at),
        "field_count": receipt.field_count,
        "duplicate": receipt.duplicate,
    }
    # encoded here: the hottest answer of all needs no model
    return Response(json.dumps(content, separators=(",", ":")).encode(), media_type=MediaType.JSON)


@post("/forms", summary="Create a form")
async def create_form(data: FormIn, create_form: NamedDependency[CreateForm]) -> FormOut:
    new = NewForm(id=FormId(data.id), name=data.name, is_active=data.is_active)
    return FormOut.of(await create_form(new))


@get("/forms", summary="List forms, by id")
async def list_forms(
    list_forms: NamedDependency[ListForms], limit: Limit = 50, cursor: Cursor = None
) -> Page[FormOut]:
    found = await list_forms(after=checked_cursor(cursor), limit=limit + 1)
    return page_of(found, limit=limit, shown=FormOut.of, id_of=lambda form: form.id)


@get("/forms/{form_id:str}", summary="Show a form")
async def show_form(form_id: str, show_form: NamedDependency[ShowForm]) -> FormOut:
    return FormOut.of(await show_form(FormId(checked_id("form", form_id))))


@get("/submissions", summary="List submissions, the newest first")
async def list_submissions(
    list_submissions: NamedDependency[ListSubmissions],
    form_id: str | None = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Page[SubmissionOut]:
    of_form = checked_filter("form_id", form_id)
    found = await list_submissions(
        form_id=None if of_form is None else FormId(of_form), before=checked_cursor(cursor), limit=limit + 1
    )
    return page_of(found, limit=limit, shown=SubmissionOut.of, id_of=lambda submission: submission.id)


@get("/submissions/{submission_id:str}", summary="Show a submission with its fields")
async def show_submission(
    submission_id: str, show_submission: NamedDependency[ShowSubmission]
) -> SubmissionWithFields:
    return SubmissionWithFields.of(
        await show_submission(SubmissionId(checked_id("submission", submission_id)))
    )


@delete("/submissions/{submission_id:str}", summary="Erase a submission; what waits of it fails")
async def erase_submission(submission_id: str, erase_submission: NamedDependency[EraseSubmission]) -> None:
    await erase_submission(SubmissionId(checked_id("submission", submission_id)))


management = Router(
    "/",
    route_handlers=[create_form, list_forms, show_form, list_submissions, show_submission, erase_submission],
    dependencies=use_cases(
        "create_form",
        "list_forms",
        "show_form",
        "list_submissions",
        "show_submission",
        "erase_submission",
    ),
)
