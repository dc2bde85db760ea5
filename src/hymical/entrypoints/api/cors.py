"""Cross-origin requests to the public intake, by the rules of each form (the Fetch standard)."""

import logging
import re
from typing import Any, Final

from litestar import Request, Response, route
from litestar.datastructures import State
from litestar.enums import HttpMethod, ScopeType
from litestar.types import HTTPScope, Message, Scope

from hymical.domain.errors import StorageUnavailable
from hymical.domain.forms import Form, is_form_id
from hymical.domain.ids import FormId

MAX_AGE_SECONDS: Final = 5.0
"""How old a form's rules may be for the headers of an answer."""

_log = logging.getLogger(__name__)

_PATH = re.compile(r"/f/([^/]+)(/thanks)?/?")
_PREFLIGHT_SECONDS = 7_200
_FORBIDDEN, _NOT_FOUND, _UNAVAILABLE = 403, 404, 503
# the star is for whatever else a script sends, such as the headers of a tracing library: no credentials are used here
_REQUEST_HEADERS = "content-type, idempotency-key, x-requested-with, *"
_EXPOSED_HEADERS = (
    "retry-after, ratelimit, ratelimit-policy, ratelimit-limit, ratelimit-remaining, ratelimit-reset"
)


@route(
    ["/f/{form_id:str}", "/f/{form_id:str}/thanks"],
    http_method=HttpMethod.OPTIONS,
    status_code=204,
    include_in_schema=False,
)
async def preflight(form_id: str, request: Request[Any, Any, Any], state: State) -> Response[None]:
    """Says what a script may send; `share_answer` says to whom. Without that, nothing is allowed."""
    methods = "GET" if request.scope["path"].endswith("/thanks") else "POST"
    headers = {"allow": f"{methods}, OPTIONS"}
    origin = request.headers.get("origin")
    if origin is not None:
        form = await _form(state, form_id, max_age=0)
        allowed = _allowed(form, origin)
        if allowed is not None:
            headers |= {
                "access-control-allow-origin": allowed,
                "access-control-allow-methods": methods,
                "access-control-allow-headers": _REQUEST_HEADERS,
                "access-control-max-age": str(_PREFLIGHT_SECONDS),
            }
    return Response(None, headers=headers)


async def share_answer(message: Message, scope: Scope) -> None:
    """Adds the headers to an answer of the public intake that is about to be sent.

    Litestar calls it outside of its own handling of errors and of unknown addresses, so that no answer is left out.
    """
    if message["type"] != "http.response.start" or scope["type"] != ScopeType.HTTP:
        return
    match = _PATH.fullmatch(scope["path"].removeprefix(scope.get("root_path", "")))
    if match is None:
        return
    headers = [(name, value) for name, value in message["headers"] if name.lower() != b"vary"]
    varies = [value for name, value in message["headers"] if name.lower() == b"vary"]
    headers.append((b"vary", b", ".join([*varies, b"Origin"])))
    origin = next((value for name, value in scope["headers"] if name == b"origin"), None)
    if origin is not None and scope["method"] != "OPTIONS":
        allowed = await _reader(scope, message["status"], match[1], origin.decode("latin-1"))
        if allowed is not None:
            headers += [
                (b"access-control-allow-origin", allowed.encode("latin-1")),
                (b"access-control-expose-headers", _EXPOSED_HEADERS.encode()),
            ]
    message["headers"] = headers


async def _reader(scope: HTTPScope, status: int, form_id: str, origin: str) -> str | None:
    """Who may read an answer."""
    if status == _FORBIDDEN:
        return None
    if status == _NOT_FOUND:
        return "*"
    state = scope["litestar_app"].state
    # a database that has just been away is not asked again
    form = (
        state.known_forms.last(form_id)
        if status == _UNAVAILABLE
        else await _form(state, form_id, max_age=MAX_AGE_SECONDS)
    )
    allowed = _allowed(form, origin)
    if allowed is None and scope["method"] == "POST" and status < 400:  # noqa: PLR2004
        # it was accepted by rules that are newer
        return origin
    return allowed


async def _form(state: State, form_id: str, *, max_age: float) -> Form | None:
    if not is_form_id(form_id):
        return None
    try:
        form: Form | None = await state.known_forms.find(FormId(form_id), max_age=max_age)
    except StorageUnavailable:
        return None
    except Exception:  # noqa: BLE001  an answer that is ready is not lost over its headers
        _log.exception("the rules of a form cannot be read")
        return None
    return form


def _allowed(form: Form | None, origin: str) -> str | None:
    """The value of `access-control-allow-origin`, None for no header. A form that is not known keeps nobody out."""
    if form is None or not form.allowed_origins:
        return "*"
    # pages that hide their origin may post, so they may read the answer too
    return origin if origin == "null" or origin in form.allowed_origins else None
