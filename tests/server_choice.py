"""Which PostgreSQL a test run uses."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

VARIABLE = "FORMS_TEST_DATABASE_URL"


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """A server that the caller names by the url of a database in which new ones may be created."""

    url: str


@dataclass(frozen=True, slots=True)
class Container:
    pass


@dataclass(frozen=True, slots=True)
class Embedded:
    pass


Choice = Given | Container | Embedded


def choose(environment: Mapping[str, str], docker_answers: Callable[[], bool]) -> Choice:
    """A given url wins, then a container where a Docker engine answers, then the embedded server.

    Raises:
        ValueError: the given url is not one of PostgreSQL.
    """
    url = environment.get(VARIABLE, "").strip()
    if url:
        if urlsplit(url).scheme not in {"postgresql", "postgres"}:
            raise ValueError(f"{VARIABLE} must start with postgresql://")
        return Given(url=url)
    return Container() if docker_answers() else Embedded()


def described(choice: Choice, embedded_version: Callable[[], str]) -> str:
    """One line for the report of the run; never shows a password."""
    match choice:
        case Given(url=url):
            parts = urlsplit(url)
            return f"PostgreSQL: {parts.netloc.rpartition('@')[2]}{parts.path} ({VARIABLE})"
        case Container():
            return "PostgreSQL: testcontainers (a Docker engine answers)"
        case Embedded():
            return f"PostgreSQL: embedded {embedded_version()} (no Docker engine answers)"
