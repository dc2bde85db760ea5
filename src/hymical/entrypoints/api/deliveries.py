"""Deliveries with their attempts, and replay."""

from typing import Annotated

from litestar import Router, get, post
from litestar.di import NamedDependency
from litestar.params import QueryParameter

from hymical.application.deliveries import ListDeliveries, ReplayDelivery, ResendDelivery, ShowDelivery
from hymical.domain.deliveries import DeliveryState
from hymical.domain.errors import InvalidValue
from hymical.domain.ids import DeliveryId, DestinationId, FormId, SubmissionId
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
from hymical.entrypoints.api.schemas.deliveries import DeliveryOut, DeliveryWithAttempts
from hymical.ports.deliveries import DeliveryFilter


@get("/deliveries", summary="List deliveries, the newest first")
async def list_deliveries(
    list_deliveries: NamedDependency[ListDeliveries],
    form_id: str | None = None,
    destination_id: str | None = None,
    submission_id: str | None = None,
    # a plain `state` would be the application's, and an enumeration here would be refused under this name
    delivery_state: Annotated[
        str | None, QueryParameter(name="state", schema_extra={"enum": [*DeliveryState]})
    ] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Page[DeliveryOut]:
    of_form = checked_filter("form_id", form_id)
    of_destination = checked_filter("destination_id", destination_id)
    of_submission = checked_filter("submission_id", submission_id)
    which = DeliveryFilter(
        form_id=None if of_form is None else FormId(of_form),
        destination_id=None if of_destination is None else DestinationId(of_destination),
        submission_id=None if of_submission is None else SubmissionId(of_submission),
        state=checked_state(delivery_state),
    )
    found = await list_deliveries(which, before=checked_cursor(cursor), limit=limit + 1)
    return page_of(found, limit=limit, shown=DeliveryOut.of, id_of=lambda view: view.id)


def checked_state(text: str | None) -> DeliveryState | None:
    """Raises `InvalidValue` for a state that no delivery has."""
    if text is None:
        return None
    try:
        return DeliveryState(text)
    except ValueError:
        raise InvalidValue("state", f"must be one of {', '.join(DeliveryState)}") from None


@get("/deliveries/{delivery_id:str}", summary="Show a delivery with its attempts")
async def show_delivery(
    delivery_id: str, show_delivery: NamedDependency[ShowDelivery]
) -> DeliveryWithAttempts:
    view, attempts = await show_delivery(DeliveryId(checked_id("delivery", delivery_id)))
    return DeliveryWithAttempts.with_attempts(view, attempts)


@post("/deliveries/{delivery_id:str}/replay", status_code=200, summary="Send a failed delivery again")
async def replay_delivery(delivery_id: str, replay_delivery: NamedDependency[ReplayDelivery]) -> DeliveryOut:
    return DeliveryOut.of(await replay_delivery(DeliveryId(checked_id("delivery", delivery_id))))


@post(
    "/deliveries/{delivery_id:str}/resend",
    status_code=202,
    summary="Send its message once more, as a new delivery",
)
async def resend_delivery(delivery_id: str, resend_delivery: NamedDependency[ResendDelivery]) -> DeliveryOut:
    return DeliveryOut.of(await resend_delivery(DeliveryId(checked_id("delivery", delivery_id))))


management = Router(
    "/",
    route_handlers=[list_deliveries, show_delivery, replay_delivery, resend_delivery],
    dependencies=use_cases("list_deliveries", "show_delivery", "replay_delivery", "resend_delivery"),
)
