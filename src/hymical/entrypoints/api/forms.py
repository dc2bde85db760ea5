"""The management of forms and submissions."""

from typing import Annotated

from litestar import Router, delete, get, patch, post
from litestar.datastructures import State
from litestar.di import NamedDependency
from litestar.params import Parameter

from hymical.application.forms import (
    ChangeForm,
    CreateForm,
    DeleteForm,
    EraseSubmission,
    ListForms,
    ListSubmissions,
    MarkGood,
    ShowForm,
    ShowSubmission,
)
from hymical.domain.ids import FormId, SubmissionId
from hymical.entrypoints.api.pages import (
    Cursor,
    Limit,
    Page,
    checked_cursor,
    checked_filter,
    checked_id,
    checked_instant,
    checked_text,
    page_of,
)
from hymical.entrypoints.api.provide import use_cases
from hymical.entrypoints.api.schemas.forms import (
    FormIn,
    FormOut,
    FormPatch,
    SubmissionOut,
    SubmissionWithFields,
    cursor_of,
    place_of,
)
from hymical.ports.forms import SubmissionFilter

ReceivedAfter = Annotated[
    str | None, Parameter(description="Only later ones, RFC 3339.", schema_extra={"format": "date-time"})
]
ReceivedBefore = Annotated[
    str | None, Parameter(description="Only earlier ones, RFC 3339.", schema_extra={"format": "date-time"})
]
Searched = Annotated[
    str | None,
    Parameter(description="In a name or a value of them, capital or not.", min_length=1, max_length=200),
]


@post("/forms", summary="Create a form")
async def create_form(data: FormIn, create_form: NamedDependency[CreateForm]) -> FormOut:
    return FormOut.of(await create_form(data.to_domain()))


@get("/forms", summary="List forms, by id")
async def list_forms(
    list_forms: NamedDependency[ListForms], limit: Limit = 50, cursor: Cursor = None
) -> Page[FormOut]:
    found = await list_forms(after=checked_cursor(cursor), limit=limit + 1)
    return page_of(found, limit=limit, shown=FormOut.of, id_of=lambda form: form.id)


@get("/forms/{form_id:str}", summary="Show a form")
async def show_form(form_id: str, show_form: NamedDependency[ShowForm]) -> FormOut:
    return FormOut.of(await show_form(FormId(checked_id("form", form_id))))


@patch("/forms/{form_id:str}", summary="Change a form, close it, or open it again")
async def change_form(
    form_id: str, data: FormPatch, change_form: NamedDependency[ChangeForm], state: State
) -> FormOut:
    changed = await change_form(FormId(checked_id("form", form_id)), data.changes())
    state.known_forms.forget(changed.id)
    return FormOut.of(changed)


@delete("/forms/{form_id:str}", summary="Delete a form that holds no submissions, with its destinations")
async def delete_form(form_id: str, delete_form: NamedDependency[DeleteForm], state: State) -> None:
    await delete_form(FormId(checked_id("form", form_id)))
    state.known_forms.forget(FormId(form_id))


@get(
    "/submissions",
    summary="List submissions, the newest first",
    description="A page looks at 2,000 at most: it may hold fewer than `limit`, even none, before the last one.",
)
async def list_submissions(
    list_submissions: NamedDependency[ListSubmissions],
    form_id: str | None = None,
    *,
    spam: Annotated[bool, Parameter(description="Those kept as spam, instead of the others.")] = False,
    received_after: ReceivedAfter = None,
    received_before: ReceivedBefore = None,
    q: Searched = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Page[SubmissionOut]:
    of_form = checked_filter("form_id", form_id)
    which = SubmissionFilter(
        form_id=None if of_form is None else FormId(of_form),
        spam=spam,
        received_after=checked_instant("received_after", received_after),
        received_before=checked_instant("received_before", received_before),
        text=checked_text("q", q),
    )
    page = await list_submissions(which, behind=place_of(cursor), limit=limit)
    return Page(items=[SubmissionOut.of(one) for one in page.submissions], next_cursor=cursor_of(page.end))


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


@post(
    "/submissions/{submission_id:str}/not-spam",
    status_code=200,
    summary="Take it out of the spam, and deliver it",
)
async def mark_good(submission_id: str, mark_good: NamedDependency[MarkGood]) -> SubmissionWithFields:
    return SubmissionWithFields.of(await mark_good(SubmissionId(checked_id("submission", submission_id))))


management = Router(
    "/",
    route_handlers=[
        create_form,
        list_forms,
        show_form,
        change_form,
        delete_form,
        list_submissions,
        show_submission,
        erase_submission,
        mark_good,
    ],
    dependencies=use_cases(
        "create_form",
        "list_forms",
        "show_form",
        "change_form",
        "delete_form",
        "list_submissions",
        "show_submission",
        "erase_submission",
        "mark_good",
    ),
)
