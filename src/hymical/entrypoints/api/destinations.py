"""The management of destinations."""

from litestar import Router, delete, get, patch, post
from litestar.di import NamedDependency

from hymical.application.destinations import (
    ChangeDestination,
    CreateDestination,
    DeleteDestination,
    ListDestinations,
    RotateSecret,
    SendTest,
    ShowDestination,
)
from hymical.domain.destinations import DestinationChange, DestinationState, headers_from
from hymical.domain.errors import NotFound
from hymical.domain.ids import OPERATOR, DestinationId, FormId
from hymical.entrypoints.api.pages import Cursor, Limit, Page, checked_cursor, checked_id, page_of
from hymical.entrypoints.api.provide import use_cases
from hymical.entrypoints.api.schemas.deliveries import DeliveryOut
from hymical.entrypoints.api.schemas.destinations import (
    DestinationIn,
    DestinationOut,
    DestinationPatch,
    DestinationWithSecret,
    RotationIn,
)


@post("/forms/{form_id:str}/destinations", summary="Add a destination to a form")
async def create_destination(
    form_id: str, data: DestinationIn, create_destination: NamedDependency[CreateDestination]
) -> DestinationWithSecret:
    destination = await create_destination(
        FormId(checked_id("form", form_id)),
        data.url,
        headers=headers_from(data.headers),
        max_in_flight=data.max_in_flight,
    )
    return DestinationWithSecret.showing(destination, destination.secrets[-1].value)


@get("/forms/{form_id:str}/destinations", summary="List a form's destinations, by id")
async def list_destinations(
    form_id: str,
    list_destinations: NamedDependency[ListDestinations],
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Page[DestinationOut]:
    found = await list_destinations(
        FormId(checked_id("form", form_id)), after=checked_cursor(cursor), limit=limit + 1
    )
    return page_of(found, limit=limit, shown=DestinationOut.of, id_of=lambda destination: destination.id)


@get("/destinations/{destination_id:str}", summary="Show a destination")
async def show_destination(
    destination_id: str, show_destination: NamedDependency[ShowDestination]
) -> DestinationOut:
    return DestinationOut.of(await show_destination(destination_id_of(destination_id)))


@patch("/destinations/{destination_id:str}", summary="Change, pause, resume or disable a destination")
async def change_destination(
    destination_id: str, data: DestinationPatch, change_destination: NamedDependency[ChangeDestination]
) -> DestinationOut:
    change = DestinationChange(
        url=data.url,
        headers=None if data.headers is None else headers_from(data.headers),
        max_in_flight=data.max_in_flight,
        state=data.state,
    )
    return DestinationOut.of(await change_destination(destination_id_of(destination_id), change))


@delete("/destinations/{destination_id:str}", summary="Delete a destination; what waits for it fails")
async def delete_destination(
    destination_id: str, delete_destination: NamedDependency[DeleteDestination]
) -> None:
    await delete_destination(destination_id_of(destination_id))


@post("/destinations/{destination_id:str}/pause", status_code=200, summary="Let deliveries wait")
async def pause_destination(
    destination_id: str, change_destination: NamedDependency[ChangeDestination]
) -> DestinationOut:
    change = DestinationChange(state=DestinationState.PAUSED)
    return DestinationOut.of(await change_destination(destination_id_of(destination_id), change))


@post("/destinations/{destination_id:str}/resume", status_code=200, summary="Send again, paused or disabled")
async def resume_destination(
    destination_id: str, change_destination: NamedDependency[ChangeDestination]
) -> DestinationOut:
    change = DestinationChange(state=DestinationState.ACTIVE)
    return DestinationOut.of(await change_destination(destination_id_of(destination_id), change))


@post("/destinations/{destination_id:str}/rotate-secret", status_code=200, summary="Give it a new secret")
async def rotate_secret(
    destination_id: str, rotate_secret: NamedDependency[RotateSecret], data: RotationIn | None = None
) -> DestinationWithSecret:
    until = data.previous_valid_until if data else None
    destination, secret = await rotate_secret(destination_id_of(destination_id), previous_valid_until=until)
    return DestinationWithSecret.showing(destination, secret)


@post("/destinations/{destination_id:str}/test", status_code=202, summary="Send a destination.test webhook")
async def send_test_webhook(destination_id: str, send_test: NamedDependency[SendTest]) -> DeliveryOut:
    return DeliveryOut.of(await send_test(destination_id_of(destination_id)))


def destination_id_of(text: str) -> DestinationId:
    """Raises `NotFound` for text that cannot be an id, and for the operator's."""
    destination_id = DestinationId(checked_id("destination", text))
    if destination_id == OPERATOR:
        # it belongs to the settings, not to the API
        raise NotFound("destination", text)
    return destination_id


management = Router(
    "/",
    route_handlers=[
        create_destination,
        list_destinations,
        show_destination,
        change_destination,
        delete_destination,
        pause_destination,
        resume_destination,
        rotate_secret,
        send_test_webhook,
    ],
    dependencies=use_cases(
        "create_destination",
        "list_destinations",
        "show_destination",
        "change_destination",
        "delete_destination",
        "rotate_secret",
        "send_test",
    ),
)
