"""Requests, as far as the framework's own reading of them fails."""

from typing import Any

from litestar import Request
from litestar.exceptions import SerializationException


class ApiRequest(Request[Any, Any, Any]):
    async def json(self) -> Any:  # noqa: ANN401  JSON has no narrower type
        """Raises `SerializationException`, also for what is nested too deeply to be read."""
        try:
            return await super().json()
        except RecursionError as error:
            raise SerializationException("nested too deeply") from error
