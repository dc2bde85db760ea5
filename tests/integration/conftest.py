"""Sites on fresh databases."""

import os
from collections.abc import Iterator

import pytest

from tests.database import Databases
from tests.server_choice import VARIABLE
from tests.site import Site


@pytest.fixture(scope="session", autouse=True)
def _no_settings_from_outside() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name in list(os.environ):
            if name.startswith("FORMS_") and name != VARIABLE:
                patch.delenv(name)
        yield


@pytest.fixture
def site(database_url: str) -> Iterator[Site]:
    """A site without any process yet."""
    with Site(database_url) as site:
        yield site


@pytest.fixture(scope="module")
def shared_site(databases: Databases) -> Iterator[Site]:
    """An API for a whole module, whose tests each use forms of their own."""
    with databases.migrated() as url, Site(url) as site:
        site.start_api()
        yield site
