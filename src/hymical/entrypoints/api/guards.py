"""Who may use the management API, and with which parameters."""

from typing import Any, cast

from litestar.connection import ASGIConnection
from litestar.handlers import BaseRouteHandler
from litestar.types import HTTPScope

from hymical.domain.errors import InvalidValue, Unauthorized
from hymical.domain.forms import quoted
from hymical.domain.signing import Secret


async def requires_key(connection: ASGIConnection[Any, Any, Any, Any], handler: BaseRouteHandler) -> None:  # noqa: ARG001
    """Lets a request pass that carries a valid key, which is then its `auth`. Raises `Unauthorized`."""
    scheme, _, presented = connection.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer":
        raise Unauthorized
    connection.scope["auth"] = await connection.app.state.container.authenticate()(Secret(presented.strip()))


async def knows_every_parameter(
    connection: ASGIConnection[Any, Any, Any, Any],
    handler: BaseRouteHandler,  # noqa: ARG001
) -> None:
    """Refuses a filter that would be ignored: what it leaves out would be taken for what there is.

    The description knows the parameters. Raises `InvalidValue`, naming the first that it does not.
    """
    if not connection.query_params:
        return
    method = cast("HTTPScope", connection.scope)["method"].lower()
    paths = connection.app.openapi_schema.paths or {}
    operation = getattr(paths[connection.scope["path_template"]], method)
    if operation is None:
        # the framework's own OPTIONS, which answers without a look at the query
        return
    known = [one.name for one in operation.parameters or () if one.param_in == "query"]
    for name in connection.query_params:
        if name not in known:
            raise InvalidValue(
                quoted(name),
                f"is not known here; known are {', '.join(known)}" if known else "is not known here: none is",
            )
