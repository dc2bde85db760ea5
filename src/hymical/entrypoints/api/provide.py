"""Use cases for handlers, by their name in the container."""

from typing import Any

from litestar.datastructures import State
from litestar.di import Provide

from hymical.entrypoints.bootstrap.container import Container


def use_case(name: str) -> Provide:
    """The use case that the container knows by `name`; a wrong name fails when the app is built."""
    if name not in Container.providers:
        raise LookupError(f"the container has no {name}")

    def from_container(state: State) -> Any:  # noqa: ANN401  the handler's annotation says which
        return state.container.providers[name]()

    return Provide(from_container, sync_to_thread=False)


def use_cases(*names: str) -> dict[str, Provide]:
    return {name: use_case(name) for name in names}
