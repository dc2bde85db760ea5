"""The database fixtures, over one PostgreSQL server for the whole run and all its workers."""

import os
from collections.abc import Iterator
from typing import Any

import pytest

from hymical.adapters.embedded.binaries import installed_version
from tests.database import Databases, RunServer, ServerDesk, ServerSource, WorkersServer, docker_answers
from tests.server_choice import choose, described

_SOURCE = pytest.StashKey[ServerSource]()
_DESK = pytest.StashKey[ServerDesk]()
_ADDRESS = "database_server"


def pytest_configure(config: pytest.Config) -> None:
    given: dict[str, Any] | None = getattr(config, "workerinput", None)
    if given is not None:
        config.stash[_SOURCE] = WorkersServer(*given[_ADDRESS])
        return
    source = RunServer(choose(os.environ, docker_answers))
    config.stash[_SOURCE] = source
    desk = config.stash[_DESK] = ServerDesk(source)
    # the last added is the first to run: nobody may ask for a server that is closing
    config.add_cleanup(source.close)
    config.add_cleanup(desk.close)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One more than there are cores: much of a test's time is waiting for processes to start."""
    return (os.cpu_count() or 1) + 1


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tells a worker of pytest-xdist, which is about to start, whom to ask."""
    node.workerinput[_ADDRESS] = node.config.stash[_DESK].address()


def pytest_report_header(config: pytest.Config) -> list[str]:
    source = config.stash[_SOURCE]
    return [described(source.choice, installed_version)] if isinstance(source, RunServer) else []


@pytest.fixture(scope="session")
def databases(pytestconfig: pytest.Config) -> Iterator[Databases]:
    made = Databases(pytestconfig.stash[_SOURCE])
    yield made
    made.close()


@pytest.fixture
def database_url(databases: Databases) -> Iterator[str]:
    """The url of a fresh database at the newest schema."""
    with databases.migrated() as url:
        yield url


@pytest.fixture
def empty_database_url(databases: Databases) -> Iterator[str]:
    """The url of a fresh database without any table."""
    with databases.empty() as url:
        yield url


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--fuzz",
        type=int,
        default=1,
        metavar="N",
        help="N times as many made-up requests in the tests that make them up",
    )


@pytest.fixture(scope="session")
def fuzz(pytestconfig: pytest.Config) -> int:
    """How many times as many examples are made up as usual."""
    times: int = pytestconfig.getoption("--fuzz")
    return times
