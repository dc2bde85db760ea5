"""The OpenAPI document as it is answered, and a page of it that needs no script and no other host."""

from collections.abc import Iterator
from dataclasses import replace
from html import escape
from http import HTTPStatus
from typing import Any

from litestar import Request
from litestar.openapi.plugins import OpenAPIRenderPlugin
from litestar.openapi.spec import (
    OpenAPI,
    OpenAPIHeader,
    OpenAPIMediaType,
    OpenAPIResponse,
    Operation,
    Parameter,
    Reference,
    RequestBody,
    Schema,
)
from litestar.openapi.spec.enums import OpenAPIType

_TEXT, _COUNT = Schema(type=OpenAPIType.STRING), Schema(type=OpenAPIType.INTEGER)
_SCALARS = [_TEXT, Schema(type=OpenAPIType.NUMBER), Schema(type=OpenAPIType.BOOLEAN)]
_REFUSED_FIELD = Schema(type=OpenAPIType.OBJECT, properties={"field": _TEXT, "detail": _TEXT})
_PROBLEM = Schema(
    title="Problem",
    description="RFC 9457; `code` never changes, `detail` says what to do.",
    type=OpenAPIType.OBJECT,
    required=["type", "title", "status", "detail", "code"],
    properties={
        "type": _TEXT,
        "title": _TEXT,
        "status": _COUNT,
        "detail": _TEXT,
        "code": _TEXT,
        "errors": Schema(type=OpenAPIType.ARRAY, items=_REFUSED_FIELD),
    },
)
_PROBLEMS = {
    400: "The body cannot be read.",
    401: "No valid key was sent.",
    403: "The page that posts is of none of the form's `allowed_origins`.",
    404: "It is not there.",
    409: "Its state, or what is there already, is in the way.",
    410: "It was there, and is removed.",
    413: "The body is too large.",
    415: "The content type is not supported.",
    422: "A value breaks a rule; `errors` names each field.",
    429: "Too many posts; one is accepted once `Retry-After` is over.",
    503: "The database is away or at another migration; try again after `Retry-After`.",
}
_SUCCESSES = {
    200: "As it is now.",
    201: "As it was created.",
    202: "Accepted, and on its way.",
    204: "Done; there is nothing to say.",
}
_INTAKE = "/f/{form_id}"
_THANKS = "/f/{form_id}/thanks"
_PAGE_FOR_A_PERSON = OpenAPIMediaType(schema=_TEXT)
_EVENTS = "/api/v1/jobs/{job_id}/events"
_FORM = Schema(
    type=OpenAPIType.OBJECT,
    description="Any names; a repeated one has several values.",
    additional_properties=Schema(any_of=[_TEXT, Schema(type=OpenAPIType.ARRAY, items=_TEXT)]),
)
_FLAT_OBJECT = Schema(
    type=OpenAPIType.OBJECT,
    description="Any names, each with a value or a list of them; numbers are kept as they are written.",
    additional_properties=Schema(
        any_of=[*_SCALARS, Schema(type=OpenAPIType.ARRAY, items=Schema(any_of=_SCALARS))]
    ),
)
_FILES = ("/api/v1/submissions/export", "/api/v1/exports/{job_id}/file")
_FORM_TYPES = {
    "application/x-www-form-urlencoded": _FORM,
    "multipart/form-data": _FORM,
    "application/json": _FLAT_OBJECT,
}
_IDEMPOTENCY_KEY = Parameter(
    name="Idempotency-Key",
    param_in="header",
    description="Makes the post safe to repeat: 1 to 255 visible ASCII characters, scoped to the form.",
    schema=_TEXT,
)
_PATTERNS = {
    "form_id": "^[a-z0-9_-]{3,64}$",
    # of a queue or a schedule
    "name": "^[a-z][a-z0-9_.-]{0,62}$",
}
_LIMIT_HEADERS = {
    "RateLimit-Limit": "How many posts at once; absent, like the others, where nothing limits.",
    "RateLimit-Remaining": "How many of them are left.",
    "RateLimit-Reset": "Seconds until all of them are there again.",
}


def complete(document: OpenAPI) -> None:
    """Adds what the framework cannot know: the problems that each route answers, and the bodies of the intake."""
    assert document.components is not None  # noqa: S101  the framework makes them
    document.components.schemas = {**(document.components.schemas or {}), "Problem": _PROBLEM}
    for path, item in (document.paths or {}).items():
        operations = {"get": item.get, "post": item.post, "patch": item.patch, "delete": item.delete}
        for method, operation in operations.items():
            if operation is not None:
                _describe_ids(operation)
                if path == _INTAKE and method == "post":
                    content = {name: OpenAPIMediaType(schema=body) for name, body in _FORM_TYPES.items()}
                    operation.request_body = RequestBody(content=content, required=True)
                    operation.parameters = [*(operation.parameters or ()), _IDEMPOTENCY_KEY]
                _answer(
                    operation, set(_statuses(path, method, operation)), has_pages=path in {_INTAKE, _THANKS}
                )
                if path == _INTAKE and method == "post":
                    _tell_of_limits(operation)
    _stream(document)


def _describe_ids(operation: Operation) -> None:
    for one in operation.parameters or ():
        if isinstance(one, Parameter) and one.param_in == "path" and isinstance(one.schema, Schema):
            one.schema = replace(one.schema, pattern=_PATTERNS.get(one.name, "^[a-z0-9_-]{1,64}$"))


def _stream(document: OpenAPI) -> None:
    """The framework takes one media type for an answer."""
    events = _success(document, _EVENTS)
    events.content = {"text/event-stream": OpenAPIMediaType(schema=_TEXT), **(events.content or {})}
    for path in _FILES:
        _success(document, path).content = {
            "application/json": OpenAPIMediaType(schema=Schema(type=OpenAPIType.ARRAY)),
            "application/x-ndjson": OpenAPIMediaType(schema=_TEXT),
            "text/csv": OpenAPIMediaType(schema=_TEXT),
        }


def _success(document: OpenAPI, path: str) -> OpenAPIResponse:
    operation = (document.paths or {})[path].get
    answer = ((operation and operation.responses) or {})["200"]
    assert isinstance(answer, OpenAPIResponse)  # noqa: S101  and not a reference to one
    return answer


def _statuses(path: str, method: str, operation: Operation) -> Iterator[int]:
    if path == "/health":
        return
    yield 503
    if "{" in path:
        yield 404
    asked = [
        one for one in operation.parameters or () if isinstance(one, Parameter) and one.param_in == "query"
    ]
    if operation.request_body or asked:
        yield 422
    if operation.request_body:
        yield 400
    if method in {"post", "patch"} or (method == "delete" and path.endswith("/forms/{form_id}")):
        yield 409
    if path.endswith("/file"):
        yield from (409, 410)
    if path == _INTAKE:
        yield from (403, 413, 415, 429)
    else:
        yield from (401,) if operation.security else ()


def _answer(operation: Operation, statuses: set[int], *, has_pages: bool) -> None:
    responses = operation.responses = operation.responses or {}
    of_the_framework = responses.get("400")
    if isinstance(of_the_framework, OpenAPIResponse) and _is_default(of_the_framework, 400):
        # it is never answered
        del responses["400"]
    for status, told in _SUCCESSES.items():
        answer = responses.get(str(status))
        if isinstance(answer, OpenAPIResponse) and _is_default(answer, status):
            answer.description = told
    for status in sorted(statuses):
        problem = OpenAPIMediaType(schema=Reference(ref="#/components/schemas/Problem"))
        content = {
            "application/problem+json": problem,
            **({"text/html": _PAGE_FOR_A_PERSON} if has_pages else {}),
        }
        responses.setdefault(str(status), OpenAPIResponse(description=_PROBLEMS[status], content=content))
    if has_pages:
        thanks = responses.get("200")
        if isinstance(thanks, OpenAPIResponse) and thanks.content:
            thanks.content["text/html"] = _PAGE_FOR_A_PERSON


def _tell_of_limits(operation: Operation) -> None:
    for status, answer in (operation.responses or {}).items():
        if isinstance(answer, OpenAPIResponse) and status != "503":
            headers = {
                name: OpenAPIHeader(description=told, schema=_COUNT) for name, told in _LIMIT_HEADERS.items()
            }
            if status == "303":
                headers["Location"] = OpenAPIHeader(description="Where the browser goes on.", schema=_TEXT)
            answer.headers = {**(answer.headers or {}), **headers}
        if isinstance(answer, OpenAPIResponse) and status in {"429", "503"}:
            wait = OpenAPIHeader(description="Seconds to wait.", schema=_COUNT)
            answer.headers = {**(answer.headers or {}), "Retry-After": wait}


def _is_default(answer: OpenAPIResponse, status: int) -> bool:
    return answer.description == HTTPStatus(status).description


class DescriptionPage(OpenAPIRenderPlugin):
    """The document as one plain page."""

    def __init__(self) -> None:
        super().__init__(path="/")

    def render(self, request: Request[Any, Any, Any], openapi_schema: dict[str, Any]) -> bytes:  # noqa: ARG002
        title = escape(f"{openapi_schema['info']['title']} {openapi_schema['info']['version']}")
        operations = "".join(
            _operation(method, path, operation, openapi_schema)
            for path, item in openapi_schema["paths"].items()
            for method, operation in item.items()
        )
        return _PAGE.format(title=title, operations=operations).encode()


_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
  body {{ font: 1rem/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }}
  h2 {{ font-size: 1.1rem; margin-top: 2.5rem; border-top: 1px solid #ccc; padding-top: 1rem }}
  table {{ border-collapse: collapse }}
  td, th {{ text-align: left; vertical-align: top; padding: .1rem 1rem .1rem 0 }}
</style>
<h1>{title}</h1>
<p>The same for programs: <a href="/schema/openapi.json">openapi.json</a>.
Under /api/v1 every request needs <code>Authorization: Bearer hym_live_…</code>.</p>
{operations}
"""


def _operation(method: str, path: str, operation: dict[str, Any], document: dict[str, Any]) -> str:
    parts = [
        f"<h2><code>{method.upper()} {escape(path)}</code></h2>",
        f"<p>{escape(operation.get('summary', ''))}. {escape(operation.get('description', ''))}</p>",
    ]
    parameters = [
        (one["name"], one["in"], _kind(one.get("schema", {})), one.get("description", ""))
        for one in operation.get("parameters", ())
    ]
    parts += _table("Parameters", parameters)
    for media_type, content in operation.get("requestBody", {}).get("content", {}).items():
        parts += _table(f"Body, {media_type}", _fields(content["schema"], document))
    answers = [
        (status, ", ".join(answer.get("content", ())), answer["description"], "")
        for status, answer in operation["responses"].items()
    ]
    parts += _table("Answers", answers)
    for status, answer in operation["responses"].items():
        for media_type, content in answer.get("content", {}).items():
            if status.startswith("2"):
                parts += _table(f"{status}, {media_type}", _fields(content["schema"], document))
    return "\n".join(parts)


def _table(heading: str, rows: list[tuple[str, str, str, str]]) -> list[str]:
    if not rows:
        return []
    lines = ("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return [f"<h3>{escape(heading)}</h3>", "<table>", *lines, "</table>"]


def _fields(schema: dict[str, Any], document: dict[str, Any]) -> list[tuple[str, str, str, str]]:
    alternatives = [one for one in schema.get("oneOf", ()) if one.get("type") != "null"]
    found = alternatives[0] if alternatives else schema
    if "$ref" in found:
        found = document["components"]["schemas"][found["$ref"].rpartition("/")[2]]
    required = found.get("required", ())
    rows = [
        (name, "required" if name in required else "", _kind(field), field.get("description", ""))
        for name, field in found.get("properties", {}).items()
    ]
    return rows or [("", "", _kind(found), found.get("description", ""))]


def _kind(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        return str(schema["$ref"].rpartition("/")[2])
    if "oneOf" in schema:
        return " or ".join(_kind(one) for one in schema["oneOf"])
    if "enum" in schema:
        return ", ".join(map(str, schema["enum"]))
    if schema.get("type") == "array":
        return f"list of {_kind(schema.get('items', {}))}"
    return str(schema.get("title") or schema.get("format") or schema.get("type") or "")
