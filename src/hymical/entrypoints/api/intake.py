"""The public intake: what a form posts, and the page that thanks for it."""

from typing import Any

import msgspec
from litestar import MediaType, Request, Response, get, post
from litestar.datastructures import State
from litestar.openapi import ResponseSpec

from hymical.domain.errors import FormNotFound, PostRefused
from hymical.domain.forms import PostedForm, is_form_id
from hymical.domain.ids import FormId
from hymical.domain.instants import rfc3339
from hymical.entrypoints.api.answers import EncodedAnswer
from hymical.entrypoints.api.bodies import Pairs, read_pairs
from hymical.entrypoints.api.browsers import HTML_HEADERS, thanks_page, wants_html
from hymical.entrypoints.api.cors import MAX_AGE_SECONDS
from hymical.entrypoints.api.limits import standing_headers
from hymical.entrypoints.api.schemas.forms import ReceiptOut
from hymical.entrypoints.api.sources import source_digest, source_of, visitor_digest


@post(
    "/f/{form_id:str}",
    status_code=202,
    # the body is read as it comes, up to the limit that the settings give
    request_max_body_size=None,
    summary="Post a form",
    description="application/x-www-form-urlencoded, multipart/form-data with text fields, or application/json.",
    tags=["intake"],
    responses={
        202: ResponseSpec(ReceiptOut, description="Stored, and on its way to every destination."),
        303: ResponseSpec(
            None, description="The same for a browser, whose Accept prefers text/html: where it goes on."
        ),
    },
)
async def submit_form(form_id: str, request: Request[Any, Any, Any], state: State) -> EncodedAnswer:
    if not is_form_id(form_id):
        raise FormNotFound(form_id)
    headers = request.headers
    pairs: Pairs = ()
    refusal: PostRefused | None = None
    try:
        pairs = await read_pairs(
            headers.get("content-type"),
            headers.get("content-length"),
            request.stream(),
            state.limits,
        )
    except PostRefused as error:
        # what cannot be read spends of its source's rate limit too
        refusal = error
    source = source_of(
        request.client.host if request.client else None,
        headers.getall("x-forwarded-for", []),
        trusted_hops=state.trusted_hops,
    )
    receipt = await state.coalescer.accept(
        PostedForm(
            form_id=FormId(form_id),
            pairs=pairs,
            origin=headers.get("origin"),
            idempotency_key=headers.get("idempotency-key"),
            source=source_digest(state.source_key, source),
            visitor=visitor_digest(state.source_key, source, headers.get("user-agent")),
            refusal=refusal,
        )
    )
    standing = standing_headers(receipt.standing)
    if wants_html(request):
        thanks = f"{request.scope.get('root_path', '')}/f/{form_id}/thanks"
        # a reload repeats the GET that this leads to, and posts nothing
        return EncodedAnswer(
            303,
            {
                "content-type": "text/plain; charset=utf-8",
                "location": receipt.continue_at or thanks,
                "cache-control": "no-store",
                "vary": "Accept",
                **standing,
            },
        )
    content = {
        "submission_id": receipt.submission_id,
        "form_id": receipt.form_id,
        "received_at": rfc3339(receipt.received_at),
        "field_count": receipt.field_count,
        "duplicate": receipt.duplicate,
    }
    told = {"content-type": "application/json", "vary": "Accept", **standing}
    return EncodedAnswer(202, told, msgspec.json.encode(content))


@get(
    "/f/{form_id:str}/thanks",
    summary="Thank a person for what was posted",
    description="A page for a browser, whose Accept prefers text/html; JSON for everybody else.",
    tags=["intake"],
)
async def thank(form_id: str, request: Request[Any, Any, Any], state: State) -> Response[Any]:
    # as last seen will do: whoever has just posted is not to read of a database that has gone since
    known = is_form_id(form_id) and await state.known_forms.find(FormId(form_id), max_age=MAX_AGE_SECONDS)
    if not known:
        raise FormNotFound(form_id)
    if wants_html(request):
        return Response(thanks_page(), headers=HTML_HEADERS, media_type=MediaType.HTML)
    content = {"form_id": form_id, "title": "Thank you", "detail": "What was sent has been received."}
    return Response(content, headers={"cache-control": "no-store", "vary": "Accept"})
