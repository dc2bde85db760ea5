"""The ASGI application."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from litestar import Litestar, Router
from litestar.exceptions import HTTPException
from litestar.openapi.config import OpenAPIConfig
from litestar.openapi.spec import Components, SecurityScheme
from litestar.plugins.pydantic import PydanticPlugin

import hymical
from hymical.entrypoints.api import (
    bulk,
    deliveries,
    destinations,
    exports,
    forms,
    health,
    intake,
    jobs,
    keys,
    schedules,
    workers,
)
from hymical.entrypoints.api.coalescer import Coalescer
from hymical.entrypoints.api.cors import preflight, share_answer
from hymical.entrypoints.api.description import DescriptionPage, complete
from hymical.entrypoints.api.feeds import JobFeeds
from hymical.entrypoints.api.guards import knows_every_parameter, requires_key
from hymical.entrypoints.api.known_forms import KnownForms
from hymical.entrypoints.api.problems import answer_with_problem
from hymical.entrypoints.api.requests import ApiRequest
from hymical.entrypoints.bootstrap.container import Container
from hymical.entrypoints.bootstrap.resources import Role, open_container
from hymical.entrypoints.bootstrap.settings import Settings, load_settings
from hymical.entrypoints.watching import watching


def create_app(settings: Settings | None = None, container: Container | None = None) -> Litestar:
    """The application, for any ASGI server: `uvicorn --factory hymical.entrypoints.api.app:create_app`.

    Without settings they are read from the environment; without a container one is opened for as long as the
    application runs, and the database's migration is checked first.

    Raises:
        SettingsInvalid: the settings cannot work.
    """
    settings = settings or (None if container else load_settings())

    @asynccontextmanager
    async def lifespan(app: Litestar) -> AsyncIterator[None]:
        if container is not None:
            async with _serving(app, container):
                yield
            return
        assert settings is not None  # noqa: S101  read above
        async with open_container(settings, Role.API) as opened:
            await opened.schema().check()
            async with _serving(app, opened):
                yield

    app = Litestar(
        route_handlers=[
            # before the others at its addresses, or they bring an OPTIONS of their own
            preflight,
            intake.submit_form,
            intake.thank,
            health.health,
            health.ready,
            Router(
                "/api/v1",
                route_handlers=[
                    forms.management,
                    destinations.management,
                    deliveries.management,
                    bulk.management,
                    exports.management,
                    jobs.management,
                    schedules.management,
                    keys.management,
                    workers.management,
                ],
                guards=[requires_key, knows_every_parameter],
                security=[{"key": []}],
            ),
        ],
        lifespan=[lifespan],
        request_class=ApiRequest,
        # without it the models' own strictness is overruled, and "yes" is as good as true
        plugins=[PydanticPlugin(validate_strict=True)],
        before_send=[share_answer],
        exception_handlers={HTTPException: answer_with_problem, Exception: answer_with_problem},
        openapi_config=OpenAPIConfig(
            title="Hymical",
            version=hymical.__version__,
            path="/schema",
            render_plugins=[DescriptionPage()],
            components=Components(
                security_schemes={
                    "key": SecurityScheme(type="http", scheme="bearer", description="hym_live_…")
                }
            ),
        ),
        logging_config=None,
    )
    complete(app.openapi_schema)
    return app


@asynccontextmanager
async def _serving(app: Litestar, container: Container) -> AsyncIterator[None]:
    coalescer = Coalescer(container.accept_posts())
    known_forms = KnownForms(container.show_form())
    job_feeds = JobFeeds(container.watch_job(), container.list_events())
    app.state.container = container
    app.state.job_feeds = job_feeds
    app.state.coalescer = coalescer
    app.state.known_forms = known_forms
    app.state.source_key = await container.source_key().read()
    app.state.limits = container.limits()
    app.state.trusted_hops = container.settings().trusted_proxy_hops
    try:
        async with watching(container.watch_over()):
            yield
    finally:
        job_feeds.close()
        await coalescer.close()
        await known_forms.close()
