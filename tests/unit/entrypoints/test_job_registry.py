"""How types of jobs are declared and found, and what is refused at start, in words."""

import sys
from collections.abc import Awaitable, Callable, Iterator
from datetime import datetime, timedelta
from types import ModuleType
from typing import Any

import pytest
from pydantic import BaseModel, ValidationInfo, model_validator

from hymical.domain.errors import InvalidPayload
from hymical.domain.jobs import Ending, Finished, Priority
from hymical.entrypoints.jobs.registry import (
    JobDefinition,
    JobRegistry,
    JobTypesInvalid,
    RegisteredHandlers,
    discover,
    job,
)
from hymical.ports.jobs import JobContext
from hymical.testing import run_job
from tests import job_types


class Greeting(BaseModel):
    name: str
    at: datetime | None = None

    @model_validator(mode="before")
    @classmethod
    def _was_called_otherwise(cls, data: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        assert info.context is not None
        return {"name": data["who"]} if info.context["version"] == 1 else data


@job(
    queue="greetings",
    name="say_hello",
    version=2,
    priority=Priority.HIGH,
    max_retries=7,
    timeout=timedelta(1),
)
async def greet(payload: Greeting, context: JobContext, *, greeter: Callable[[str], str]) -> Ending:
    return Finished(result={"said": greeter(payload.name)})


@pytest.fixture
def module() -> Iterator[ModuleType]:
    """A module that can be imported as `acme_jobs`."""
    made = sys.modules["acme_jobs"] = ModuleType("acme_jobs")
    yield made
    del sys.modules["acme_jobs"]


def refused(function: Callable[..., Awaitable[Ending]], **options: Any) -> str:
    with pytest.raises(JobTypesInvalid) as refusal:
        job(**{"queue": "default", **options})(function)
    (problem,) = refusal.value.problems
    return problem


def test_a_type_is_what_was_declared_of_it() -> None:
    kind = greet.kind

    assert (kind.name, kind.queue, kind.version, kind.priority) == (
        "say_hello",
        "greetings",
        2,
        Priority.HIGH,
    )
    assert (kind.max_retries, kind.timeout) == (7, timedelta(1))
    assert greet.payload is Greeting
    assert greet.needs == ("greeter",)


def test_a_type_is_called_as_its_function_otherwise() -> None:
    assert job_types.count.kind.name == "count"


async def test_what_a_handler_needs_is_looked_up_at_each_run() -> None:
    greeters = iter([str.upper, str.lower])
    handlers = RegisteredHandlers(JobRegistry([greet]), {"greeter": lambda: next(greeters)})
    runnable = handlers.find("say_hello")

    assert runnable is not None
    assert runnable.timeout == timedelta(1)
    assert handlers.find("greet") is None
    run = await run_job(greet, Greeting.model_construct(name="Zoe"), greeter=str.upper)
    assert run.ending == Finished(result={"said": "ZOE"})


def test_a_payload_is_parsed_as_json_by_its_model() -> None:
    assert greet.parse({"name": "Zoe", "at": "2026-11-29T12:00:00Z"}, 2) == Greeting.model_construct(
        name="Zoe", at=datetime.fromisoformat("2026-11-29T12:00:00Z")
    )


def test_the_payload_of_an_older_version_can_be_brought_up_to_date() -> None:
    assert greet.parse({"who": "Zoe"}, 1) == Greeting.model_construct(name="Zoe", at=None)


def test_a_payload_that_does_not_fit_is_refused_without_quoting_it() -> None:
    with pytest.raises(InvalidPayload) as refusal:
        greet.parse({"name": {"s3cret": 1}, "at": "s3cret"}, 2)

    assert "name: input should be a valid string" in refusal.value.flaw
    assert "at: " in refusal.value.flaw
    assert "s3cret" not in refusal.value.flaw


def test_a_payload_of_a_newer_build_is_refused() -> None:
    with pytest.raises(InvalidPayload, match=r"it has version 3, and this build knows 2"):
        greet.parse({"name": "Zoe"}, 3)


def test_a_function_that_is_no_handler_is_refused_at_once() -> None:
    async def no_context(payload: Greeting) -> Ending:
        return Finished()

    async def positional(payload: Greeting, context: JobContext, greeter: object) -> Ending:
        return Finished()

    async def anything(payload: Greeting, context: JobContext, **more: object) -> Ending:
        return Finished()

    async def no_model(payload: dict[str, object], context: JobContext) -> Ending:
        return Finished()

    def not_async(payload: Greeting, context: JobContext) -> Awaitable[Ending]:
        return good(payload, context)

    async def good(payload: Greeting, context: JobContext) -> Ending:
        return Finished()

    for function in (no_context, positional, anything, not_async):
        assert function.__name__ in refused(function)
        assert "must be written as: async def handler(payload: Model" in refused(function)
    assert "its payload must be annotated with a pydantic model" in refused(no_model)
    assert "'No Name' must be a name" in refused(good, queue="No Name")


def test_two_jobs_of_one_name_are_refused() -> None:
    @job(queue="default", name="say_hello")
    async def other(payload: Greeting, context: JobContext) -> Ending:
        return Finished()

    with pytest.raises(JobTypesInvalid, match="two jobs are called say_hello"):
        JobRegistry([greet, other])


def test_a_job_that_needs_what_nobody_provides_is_refused() -> None:
    with pytest.raises(
        JobTypesInvalid, match="the job say_hello needs greeter, and nothing in the container"
    ):
        RegisteredHandlers(JobRegistry([greet]), {"forms": object})


def test_jobs_are_found_in_the_modules_that_are_named(module: ModuleType) -> None:
    module.__dict__.update(greet=greet, imported_from_elsewhere=greet)

    registry = discover(["acme_jobs", "tests.job_types"])

    assert registry.definitions["say_hello"] is greet
    assert {"count", "ask", "say_hello"} <= registry.definitions.keys()
    assert {"greetings", "counts", "forms"} <= set(registry.queues)
    catalog = registry.catalog(5)
    assert (catalog.types["count"], catalog.max_retries) == (job_types.count.kind, 5)


def test_shipped_jobs_can_all_be_used_together() -> None:
    assert all(isinstance(one, JobDefinition) for one in discover().definitions.values())


def test_a_module_that_cannot_be_imported_is_named() -> None:
    with pytest.raises(JobTypesInvalid, match=r"the jobs in acme\.none cannot be imported: No module named"):
        discover(["acme.none"])
