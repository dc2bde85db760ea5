"""The management of destinations."""

from litestar import Router, get, post
from litestar.di import NamedDependency

from hymical.application.destinations import CreateDestination, ListDestinations, ShowDestination
from hymical.domain.ids import DestinationId, FormId
from hymical.entrypoints.api.pages import Cursor, Limit, Page, checked_cursor, checked_id, page_of
from hymical.entrypoints.api.provide import use_cases
from hymical.entrypoints.api.schemas.destinations import DestinationIn, DestinationOut, DestinationWithSecret


@post("/forms/{form_id:str}/destinations", summary="Add a destination to a form")
async def create_destination(
    form_id: str, data: DestinationIn, create_destination: NamedDependency[CreateDestination]
) -> DestinationWithSecret:
    return DestinationWithSecret.of(await create_destination(FormId(checked_id("form", form_id)), data.url))


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
    return DestinationOut.of(await show_destination(DestinationId(checked_id("destination", destination_id))))


management = Router(
    "/",
    route_handlers=[create_destination, list_destinations, show_destination],
    dependencies=use_cases("create_destination", "list_destinations", "show_destination"),
)
