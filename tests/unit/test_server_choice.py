"""The choice of the server that the tests run on."""

import pytest

from tests.server_choice import Choice, Container, Embedded, Given, choose, described

URL = "postgresql://me:hidden@db.example:5433/postgres?sslmode=disable"


def unasked() -> bool:
    pytest.fail("a Docker engine is asked although the url is given")


def test_a_given_url_wins_and_no_docker_engine_is_asked() -> None:
    assert choose({"FORMS_TEST_DATABASE_URL": URL}, unasked) == Given(url=URL)


def test_a_docker_engine_that_answers_comes_before_the_embedded_server() -> None:
    assert choose({}, lambda: True) == Container()


@pytest.mark.parametrize("environment", [{}, {"FORMS_TEST_DATABASE_URL": " "}])
def test_the_embedded_server_needs_nothing(environment: dict[str, str]) -> None:
    assert choose(environment, lambda: False) == Embedded()


@pytest.mark.parametrize(
    "url", ["mysql://db.example/forms", "host=db.example", "postgresql+psycopg://db/forms"]
)
def test_what_is_not_a_url_of_postgresql_is_refused_by_the_name_of_the_variable(url: str) -> None:
    with pytest.raises(ValueError, match="FORMS_TEST_DATABASE_URL must start with postgresql://"):
        choose({"FORMS_TEST_DATABASE_URL": url}, unasked)


@pytest.mark.parametrize(
    ("choice", "line"),
    [
        (Given(url=URL), "PostgreSQL: db.example:5433/postgres (FORMS_TEST_DATABASE_URL)"),
        (Container(), "PostgreSQL: testcontainers (a Docker engine answers)"),
        (Embedded(), "PostgreSQL: embedded 18.6 (no Docker engine answers)"),
    ],
)
def test_the_report_names_the_server_and_hides_its_password(choice: Choice, line: str) -> None:
    assert described(choice, lambda: "18.6") == line
