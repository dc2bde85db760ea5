"""The API looks over the other processes while it serves."""

import pytest
from litestar.testing import AsyncTestClient
from pydantic import SecretStr

from hymical.entrypoints import watching
from hymical.entrypoints.api.app import create_app
from hymical.entrypoints.bootstrap.resources import Role, open_container
from hymical.entrypoints.bootstrap.settings import Settings
from tests.site import Site, until

# of the framework's own, where it reads its handlers
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


async def test_the_api_notices_that_schedules_have_no_scheduler(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "_EVERY_SECONDS", 0.01)
    settings = Settings(database_url=SecretStr(site.database_url), job_modules=("tests.scheduled_jobs",))
    async with (
        open_container(settings, Role.API) as container,
        AsyncTestClient(create_app(container=container)) as client,
    ):
        await until(lambda: site.count("alerts") == 1, "it is noticed")
        assert (await client.get("/ready")).status_code == 200

    assert site.query("SELECT kind, raised_at FROM alerts") == [("scheduler.missing", None)]
