"""The OpenAPI document and its page, as they are served without a database."""

from collections.abc import Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from litestar import Litestar
from litestar.testing import TestClient
from pydantic import SecretStr

from hymical.entrypoints.api.app import create_app
from hymical.entrypoints.bootstrap.settings import Settings

# the framework would rather have its own annotations, which say nothing more
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

FORM_TYPES = {"application/x-www-form-urlencoded", "multipart/form-data", "application/json"}


@pytest.fixture(scope="module")
def app() -> Litestar:
    return create_app(Settings(database_url=SecretStr("postgresql://localhost/x")))


@pytest.fixture(scope="module")
def document(app: Litestar) -> dict[str, Any]:
    return app.openapi_schema.to_schema()


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, item in document["paths"].items():
        for method, operation in item.items():
            yield method, path, operation


def test_a_form_may_be_posted_in_three_ways(document: dict[str, Any]) -> None:
    intake = document["paths"]["/f/{form_id}"]["post"]
    assert intake["requestBody"]["content"].keys() == FORM_TYPES
    assert intake["responses"].keys() == {
        *("202", "303", "400", "403", "404", "409", "413", "415", "422", "429", "503")
    }
    assert intake["responses"]["429"]["headers"].keys() >= {"Retry-After", "RateLimit-Reset"}


def test_the_events_of_a_job_are_a_stream_or_a_page(document: dict[str, Any]) -> None:
    events = document["paths"]["/api/v1/jobs/{job_id}/events"]["get"]
    assert [*events["responses"]["200"]["content"]] == ["text/event-stream", "application/json"]
    assert {"Last-Event-ID", "cursor", "limit"} <= {one["name"] for one in events["parameters"]}


def test_every_refusal_is_a_problem(document: dict[str, Any]) -> None:
    problem = document["components"]["schemas"]["Problem"]
    assert problem["properties"].keys() == {"type", "title", "status", "detail", "code", "errors"}
    for method, path, operation in operations(document):
        for status, answer in operation["responses"].items():
            if status >= "4":
                pages = {"text/html"} if path.startswith("/f/") else set()
                assert answer["content"].keys() == {"application/problem+json"} | pages, (
                    method,
                    path,
                    status,
                )


def test_whatever_needs_a_key_says_so_and_what_is_named_may_be_missing(document: dict[str, Any]) -> None:
    for _, path, operation in operations(document):
        assert ("401" in operation["responses"]) == path.startswith("/api/v1")
        assert ("404" in operation["responses"]) == ("{" in path)


def test_the_page_needs_no_script_and_no_other_host(document: dict[str, Any], app: Litestar) -> None:
    @asynccontextmanager
    async def without_a_database(_: Litestar) -> Any:
        yield

    app._lifespan_managers = [without_a_database]  # noqa: SLF001
    with TestClient(app) as client:
        page = client.get("/schema")
        assert client.get("/schema/openapi.json").json()["paths"] == document["paths"]

    assert page.headers["content-type"].startswith("text/html")
    assert "<script" not in page.text
    assert not any(reference in page.text for reference in ('src="', 'href="http', "url(", "@import"))
    for method, path, _ in operations(document):
        assert f"<code>{method.upper()} {path}</code>" in page.text
