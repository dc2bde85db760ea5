"""The example of the guide "add a job" is run as it stands there."""

import inspect
import re
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from hymical.entrypoints.bootstrap.container import Container
from hymical.entrypoints.jobs.registry import RegisteredHandlers, discover

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "jobs.md"


@pytest.fixture
def blocks() -> list[str]:
    return re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)


@pytest.fixture
def module(blocks: list[str]) -> Iterator[ModuleType]:
    """The guide's file, as the module that FORMS_JOB_MODULES would name."""
    made = sys.modules["greetings"] = ModuleType("greetings")
    exec(blocks[0], made.__dict__)  # noqa: S102  the project's own words
    yield made
    del sys.modules["greetings"]


def test_its_file_is_found_and_can_be_run_with_what_the_container_holds(module: ModuleType) -> None:
    registry = discover([module.__name__])

    assert registry.definitions["greet_form"].kind.queue == "default"
    providers: dict[str, Callable[[], Any]] = dict(Container.providers)
    assert RegisteredHandlers(registry, providers).find("greet_form") is not None


@pytest.mark.usefixtures("module")
async def test_its_test_passes_with_what_it_imports(blocks: list[str]) -> None:
    names: dict[str, Any] = {}
    exec(blocks[-1], names)  # noqa: S102  the project's own words
    test: Callable[[], Awaitable[None]] = names["test_a_form_is_greeted_as_it_was_answered"]

    assert inspect.iscoroutinefunction(test)
    await test()
