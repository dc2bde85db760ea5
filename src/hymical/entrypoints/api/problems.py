"""From errors to HTTP problems (RFC 9457): the only table."""

import logging
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from litestar import MediaType, Request, Response
from litestar.exceptions import (
    ClientException,
    HTTPException,
    MethodNotAllowedException,
    NotFoundException,
    ValidationException,
)

from hymical.domain import errors
from hymical.domain.deliveries import FOR_GOOD, Reason
from hymical.entrypoints.api.browsers import HTML_HEADERS, problem_page, wants_html
from hymical.entrypoints.api.limits import standing_headers
from hymical.ports.exports import Withdrawal

_PUBLIC = "/f/"

_log = logging.getLogger(__name__)
_BAD_REQUEST = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One answer: `detail` says what to do, `code` never changes."""

    status: int
    code: str
    title: str
    detail: str
    headers: dict[str, str] = field(default_factory=dict)
    errors: tuple[dict[str, str], ...] = ()


def _field(refused: errors.FieldRefused, status: int, code: str, title: str, detail: str) -> Problem:
    return Problem(
        status=status,
        code=code,
        title=title,
        detail=detail,
        errors=({"field": refused.field, "detail": detail},),
    )


_GONE = {
    Withdrawal.ERASED: "A submission that it held was erased; start another export.",
    Withdrawal.EXPIRED: "It was kept as long as FORMS_EXPORT_RETENTION_HOURS says; start another export.",
}

_TABLE: dict[type[Exception], Callable[[Any], Problem]] = {
    errors.FormNotFound: lambda _: Problem(
        status=404,
        code="form_not_found",
        title="There is no such form",
        detail="Check the form's id in the address that the form posts to.",
    ),
    errors.FormClosed: lambda _: Problem(
        status=409,
        code="form_closed",
        title="This form is closed",
        detail="It accepts no submissions at present; its owner can open it again by setting is_active.",
    ),
    errors.OriginNotAllowed: lambda error: Problem(
        status=403,
        code="origin_not_allowed",
        title="This site may not post here",
        detail=f"{error.origin} is not among the form's allowed_origins; its owner can add it. Nothing was stored.",
    ),
    errors.InvalidIdempotencyKey: lambda _: Problem(
        status=422,
        code="invalid_idempotency_key",
        title="The idempotency key cannot be used",
        detail="Idempotency-Key must be 1 to 255 visible ASCII characters, without spaces.",
    ),
    errors.IdempotencyConflict: lambda _: Problem(
        status=409,
        code="idempotency_conflict",
        title="The idempotency key was used for something else",
        detail="The first post with this key had other content; send this one with a key of its own.",
    ),
    errors.RateLimited: lambda error: Problem(
        status=429,
        code="rate_limited",
        title="Too many submissions",
        detail="Nothing of this one was stored; wait as long as Retry-After says and send it again.",
        headers={"retry-after": str(max(1, math.ceil(error.retry_after.total_seconds())))},
    ),
    errors.UnsupportedMediaType: lambda error: Problem(
        status=415,
        code="unsupported_media_type",
        title="This content type is not supported",
        detail="Send application/x-www-form-urlencoded, multipart/form-data or application/json"
        + (f", not {error.media_type}." if error.media_type else "; the request names none."),
        headers={"accept-post": "application/x-www-form-urlencoded, multipart/form-data, application/json"},
    ),
    errors.BodyTooLarge: lambda error: Problem(
        status=413,
        code="body_too_large",
        title="The submission is too large",
        detail=f"A submission may hold {error.limit} bytes at most; shorten it and send it again.",
        # the connection stays open: closed on a client that is still sending, it would take this answer with it
    ),
    errors.MalformedBody: lambda error: Problem(
        status=400,
        code="malformed_body",
        title="The body cannot be read",
        detail=f"It is not what its content type says: {error.flaw}.",
    ),
    errors.UndecodableText: lambda error: Problem(
        status=400,
        code="undecodable_text",
        title="The text cannot be read",
        detail=f"A name or a value is not text in {error.encoding}; send UTF-8, or name the encoding.",
    ),
    errors.EmptySubmission: lambda _: Problem(
        status=422,
        code="empty_submission",
        title="The submission is empty",
        detail="Fill in at least one field; an input without a name attribute is not sent by browsers.",
    ),
    errors.TooManyFields: lambda error: Problem(
        status=422,
        code="too_many_fields",
        title="The submission has too many fields",
        detail=f"A submission may hold {error.limit} fields at most, each repetition counted.",
    ),
    errors.FieldNameTooLong: lambda error: _field(
        error, 422, "field_name_too_long", "A field's name is too long", "Give the field a shorter name."
    ),
    errors.InvalidFieldName: lambda error: _field(
        error,
        422,
        "invalid_field_name",
        "A field's name cannot be used",
        "A name must not be empty, and must not hold control characters.",
    ),
    errors.FieldValueTooLong: lambda error: _field(
        error, 422, "field_value_too_long", "A value is too long", "Shorten what is in this field."
    ),
    errors.InvalidFieldValue: lambda error: _field(
        error,
        422,
        "invalid_field_value",
        "A value cannot be kept",
        "A value must be text, a number, true or false, or a list of those, without NUL characters.",
    ),
    errors.FileUploadNotSupported: lambda error: _field(
        error,
        422,
        "file_upload_not_supported",
        "Files are not accepted",
        "Send the form without the file; nothing of it has been stored.",
    ),
    errors.StorageUnavailable: lambda _: Problem(
        status=503,
        code="storage_unavailable",
        title="Storage is not available",
        detail="Nothing was confirmed as stored; try again in a moment.",
        headers={"retry-after": "5"},
    ),
    errors.Overloaded: lambda _: Problem(
        status=503,
        code="storage_unavailable",
        title="Too much is waiting to be stored",
        detail="Nothing of this was stored; try again in a moment.",
        headers={"retry-after": "5"},
    ),
    errors.SchemaMismatch: lambda error: Problem(
        status=503,
        code="storage_unavailable",
        title="The database is at another migration",
        detail=schema_mismatch(error),
    ),
    errors.NotFound: lambda error: Problem(
        status=404, code="not_found", title="Not found", detail=f"There is no such {error.kind}."
    ),
    errors.AlreadyExists: lambda error: Problem(
        status=409,
        code="conflict",
        title="Already there",
        detail=f"There is a {error.kind} with the id {error.id} already; choose another id.",
    ),
    errors.FormNotEmpty: lambda _: Problem(
        status=409,
        code="form_not_empty",
        title="The form holds submissions",
        detail="Erase them first, or close the form instead: PATCH it with is_active false.",
    ),
    errors.NotSpam: lambda _: Problem(
        status=409,
        code="conflict",
        title="Not spam",
        detail="This submission is not kept as spam; it has been, or is being, delivered.",
    ),
    errors.UnknownJobType: lambda error: Problem(
        status=422,
        code="invalid_request",
        title="There is no such job type",
        detail=f"The API knows no job type {error.type!r}; one of your own needs its module in FORMS_JOB_MODULES.",
    ),
    errors.InvalidPayload: lambda error: Problem(
        status=422,
        code="invalid_request",
        title="The job's payload does not fit its type",
        detail=f"Change the payload: {error.flaw}.",
    ),
    errors.JobLost: lambda _: Problem(
        status=409,
        code="conflict",
        title="The job is in other hands",
        detail="It was reclaimed, cancelled or deleted.",
    ),
    errors.JobNotWaiting: lambda error: Problem(
        status=409,
        code="conflict",
        title="The job waits for no such answer",
        detail=(
            f"It waits for the answer to {error.question!r}."
            if error.question
            else f"It is {error.state} and waits for no answer; one that was given cannot be given again."
        ),
    ),
    errors.JobEnded: lambda error: Problem(
        status=409,
        code="conflict",
        title="The job has ended",
        detail=f"It is {error.state}; only a job that has not ended can be cancelled.",
    ),
    errors.JobNotFailed: lambda error: Problem(
        status=409,
        code="conflict",
        title="The job has not failed",
        detail=f"It is {error.state}; only a failed job can be retried.",
    ),
    errors.TooManyColumns: lambda error: Problem(
        status=422,
        code="invalid_request",
        title="The submissions have too many different fields",
        detail=f"A CSV file may have {error.limit} of them at most; format json or ndjson takes any.",
        errors=({"field": "format", "detail": "must be json or ndjson for this many fields."},),
    ),
    errors.ExportNotReady: lambda error: Problem(
        status=409,
        code="conflict",
        title="The export has no file",
        detail=f"Its job is {error.state}; there is a file once it is completed.",
    ),
    errors.ExportWithdrawn: lambda _: Problem(
        status=410,
        code="export_gone",
        title="The file is removed",
        detail="It was removed while it was read; start another export.",
    ),
    errors.ExportGone: lambda error: Problem(
        status=410,
        code="export_gone",
        title="The file is removed",
        detail=_GONE[error.reason],
    ),
    errors.NotReplayable: lambda error: Problem(
        status=409,
        code="conflict",
        title="Not replayable",
        detail=_not_replayable(error),
    ),
    errors.NotResendable: lambda _: Problem(
        status=409,
        code="conflict",
        title="Not resendable",
        detail="Its submission was erased, or its destination was deleted or is disabled.",
    ),
    errors.SecretUnreadable: lambda _: Problem(
        status=409,
        code="conflict",
        title="The secrets cannot be opened",
        detail="They were sealed with a key that FORMS_SECRET_KEY does not hold; add that key behind the newest one.",
    ),
    errors.InvalidValue: lambda error: Problem(
        status=422,
        code="invalid_request",
        title="A value breaks a rule",
        detail=f"{error.field} {error.rule}.",
        errors=({"field": error.field, "detail": f"{error.rule}."},),
    ),
    errors.Unauthorized: lambda _: Problem(
        status=401,
        code="unauthorized",
        title="A key is needed",
        detail="Send a valid key: Authorization: Bearer hym_live_…; `hymical keys create` makes one.",
        headers={"www-authenticate": "Bearer"},
    ),
    NotFoundException: lambda _: Problem(
        status=404, code="not_found", title="Not found", detail="There is nothing at this address."
    ),
    MethodNotAllowedException: lambda error: Problem(
        status=405,
        code="method_not_allowed",
        title="This method is not allowed here",
        detail="Use one of the methods that the Allow header names.",
        headers=dict(error.headers or {}),
    ),
    ValidationException: lambda error: Problem(
        status=422,
        code="invalid_request",
        title="The request breaks a rule",
        detail="See errors for each field.",
        errors=tuple(_validation(one) for one in error.extra or ()),
    ),
    ClientException: lambda error: (
        Problem(
            status=400,
            code="invalid_request",
            title="The body cannot be read",
            detail="The body is not JSON; send it with content-type: application/json.",
        )
        if error.status_code == _BAD_REQUEST
        else _TABLE[HTTPException](error)
    ),
    HTTPException: lambda error: Problem(
        status=error.status_code,
        code="invalid_request" if error.status_code < 500 else "internal_error",  # noqa: PLR2004
        title="The request cannot be answered",
        detail="Check the request against /schema.",
        headers=dict(error.headers or {}),
    ),
}


def problem_of(error: Exception) -> Problem:
    """The problem for an error, by its class or the nearest one above it."""
    for kind in type(error).__mro__:
        make = _TABLE.get(kind)
        if make is not None:
            return make(error)
    return Problem(
        status=500,
        code="internal_error",
        title="Something failed in Hymical",
        detail="It has been logged. Whether anything was stored is not certain.",
    )


def schema_mismatch(error: errors.SchemaMismatch) -> str:
    """The sentence for a database that this build does not run on."""
    if error.is_newer:
        return (
            f"The database is at migration {error.found}, which this build does not know (its newest is"
            f" {error.expected}): run the build that migrated it, or a newer one."
        )
    found = f"at migration {error.found}" if error.found else "not migrated"
    return (
        f"The database is {found} but this build expects {error.expected}:"
        " stop the other processes and run `hymical migrate`."
    )


def _not_replayable(error: errors.NotReplayable) -> str:
    if error.reason in FOR_GOOD:
        return (
            f"This one failed for good: {error.reason}; there is nothing left to send, or nowhere to send it."
        )
    if error.reason == Reason.DESTINATION_DISABLED:
        return "Its destination is disabled; resume it first."
    return f"Only a failed delivery can be replayed; this one is {error.state}."


def answer_with_problem(request: Request[Any, Any, Any], error: Exception) -> Response[Any]:
    """A page for a browser at the public intake, `application/problem+json` for everybody else."""
    problem = problem_of(error)
    if isinstance(error, errors.PostRefused):
        problem = replace(problem, headers={**problem.headers, **standing_headers(error.standing)})
    if problem.status >= 500:  # noqa: PLR2004
        expected = isinstance(error, errors.HymicalError)
        _log.error(
            "%s %s: %s%s",
            request.method,
            request.scope["path"],
            type(error).__name__,
            f": {problem.detail}" if isinstance(error, errors.SchemaMismatch) else "",
            exc_info=None if expected else error,
        )
    if not _is_public(request):
        return _json(problem, problem.headers)
    if not wants_html(request):
        return _json(problem, {**problem.headers, "vary": "Accept"})
    page = problem_page(
        status=problem.status,
        code=problem.code,
        title=problem.title,
        detail=problem.detail,
        errors=[(one["field"], one["detail"]) for one in problem.errors],
        retry_after=problem.headers.get("retry-after"),
        posted=request.method == "POST",
    )
    return Response(
        page,
        status_code=problem.status,
        headers={**problem.headers, **HTML_HEADERS},
        media_type=MediaType.HTML,
    )


def _is_public(request: Request[Any, Any, Any]) -> bool:
    path, root = request.scope["path"], request.scope.get("root_path", "")
    return path.removeprefix(root).startswith(_PUBLIC)


def _json(problem: Problem, headers: dict[str, str]) -> Response[dict[str, Any]]:
    content: dict[str, Any] = {
        "type": "about:blank",
        "title": problem.title,
        "status": problem.status,
        "detail": problem.detail,
        "code": problem.code,
    }
    if problem.errors:
        content["errors"] = list(problem.errors)
    return Response(
        content, status_code=problem.status, headers=headers, media_type="application/problem+json"
    )


_PLAINLY = (
    (re.compile(r"Input should be a valid dictionary.*"), "must be a JSON object"),
    (re.compile(r"Expected `int` <= (\d+)"), r"must be at most \1"),
    (re.compile(r"Expected `int` >= (\d+)"), r"must be at least \1"),
    (re.compile(r"Expected `int`, got .*"), "must be a whole number"),
    (re.compile(r"Field required|'data'"), "is required"),
)


def _validation(one: Any) -> dict[str, str]:  # noqa: ANN401  what litestar gives
    message = str(one.get("message", ""))
    told = next(
        (match.expand(words) for said, words in _PLAINLY if (match := said.fullmatch(message))), message
    )
    return {"field": str(one.get("key", "")), "detail": told}
