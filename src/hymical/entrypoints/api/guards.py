"""Who may use the management API."""

from typing import Any

from litestar.connection import ASGIConnection
from litestar.handlers import BaseRouteHandler

from hymical.domain.errors import Unauthorized
from hymical.domain.signing import Secret


async def requires_key(connection: ASGIConnection[Any, Any, Any, Any], handler: BaseRouteHandler) -> None:  # noqa: ARG001
    """Lets a request pass that carries a valid key, which is then its `auth`. Raises `Unauthorized`."""
    scheme, _, presented = connection.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer":
        raise Unauthorized
    connection.scope["auth"] = await connection.app.state.container.authenticate()(Secret(presented.strip()))
