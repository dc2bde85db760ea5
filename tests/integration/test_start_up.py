"""How processes and commands refuse to start: one sentence that says what to do, and an exit code."""

import os
import secrets
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from hymical.adapters.postgres.schema import REVISION
from tests.database import Databases
from tests.site import Site, run_hymical, until

COMMANDS = [("serve", "--port", "0"), ("worker",), ("keys", "create", "--name", "x")]
each_command = pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])

NO_ANSWER = (
    "hymical: the database that FORMS_DATABASE_URL names does not answer;"
    " is it running, and is the URL right?\n"
)
PASSWORD = "hunter2-never-shown"


@pytest.fixture
def nobody_listens() -> Iterator[int]:
    """A port that is ours, and on which nobody takes connections."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


def newer() -> str:
    return (
        "the database is at migration 9999, which this build does not know (its newest is"
        f" {REVISION}); run the build that migrated it, or a newer one"
    )


def refuses(ended: subprocess.CompletedProcess[str], *, said: str, code: int) -> None:
    assert (ended.returncode, ended.stdout, ended.stderr) == (code, "", said)


@each_command
def test_a_database_that_was_never_migrated(empty_database_url: str, command: tuple[str, ...]) -> None:
    refuses(
        Site(empty_database_url).run(*command),
        said=f"hymical: the database is not migrated but this build expects {REVISION}; run `hymical migrate`\n",
        code=1,
    )


@each_command
def test_a_database_of_a_newer_build_is_left_alone(site: Site, command: tuple[str, ...]) -> None:
    site.execute("UPDATE alembic_version SET version_num = '9999'")
    refuses(
        site.run(*command),
        said=f"hymical: {newer()}\n",
        code=1,
    )


@each_command
def test_a_database_server_that_does_not_answer(nobody_listens: int, command: tuple[str, ...]) -> None:
    url = f"postgresql://hymical:{PASSWORD}@127.0.0.1:{nobody_listens}/hymical"
    refuses(Site(url).run(*command), said=NO_ANSWER, code=1)


@each_command
def test_a_role_that_was_granted_too_little_is_told_in_postgresql_s_own_words(
    site: Site, command: tuple[str, ...]
) -> None:
    role = f"stranger_{secrets.token_hex(4)}"
    site.execute(f"CREATE ROLE {role} LOGIN")
    site.execute("REVOKE ALL ON SCHEMA public FROM public")
    try:
        parts = urlsplit(site.database_url)
        address = parts.netloc.rpartition("@")[2]
        stranger = Site(parts._replace(netloc=f"{role}@{address}").geturl())
        made = stranger.run(*command)
    finally:
        site.execute(f"DROP ROLE {role}")

    assert made.returncode == 1
    assert "Traceback" not in made.stderr
    assert "names refuses: permission denied" in made.stderr or "is not migrated" in made.stderr


def test_a_database_that_is_not_there(database_url: str) -> None:
    url = urlsplit(database_url)._replace(path="/no_such_database").geturl()
    said = (
        "hymical: the database that FORMS_DATABASE_URL names refuses:"
        ' database "no_such_database" does not exist\n'
    )
    for command in ("serve", "migrate"):
        refuses(Site(url).run(command), said=said, code=1)


@each_command
def test_impossible_settings_are_all_listed_at_once(command: tuple[str, ...]) -> None:
    ended = run_hymical(
        *command,
        environment={
            "FORMS_DATABASE_URL": f"mysql://hymical:{PASSWORD}@127.0.0.1/hymical",
            "FORMS_WORKER_BATCH_SIZE": "0",
            "FORMS_WORKER_POLL_SECONDS": "soon",
            "FORMS_WEBHOOK_ALLOWED_NETWORKS": "nonsense",
            "FORMS_WORKER_LEASE_SECONDS": "5",
        },
    )
    assert (ended.returncode, ended.stdout) == (2, "")
    assert sorted(ended.stderr.splitlines()) == [
        "hymical: FORMS_DATABASE_URL must start with postgresql://.",
        "hymical: FORMS_WEBHOOK_ALLOWED_NETWORKS 'nonsense' does not appear to be an IPv4 or IPv6 network.",
        "hymical: FORMS_WORKER_BATCH_SIZE must be greater than 0.",
        (
            "hymical: FORMS_WORKER_LEASE_SECONDS is 5 s, but one attempt may take 15 s"
            " (FORMS_WEBHOOK_CONNECT_TIMEOUT_SECONDS plus FORMS_WEBHOOK_READ_TIMEOUT_SECONDS):"
            " set it to 18 s or more, or shorten those two."
        ),
        "hymical: FORMS_WORKER_POLL_SECONDS must be a duration such as 0.5, 30s, 5m or 2h.",
    ]


@each_command
def test_no_settings_at_all(command: tuple[str, ...]) -> None:
    refuses(
        run_hymical(*command, environment={}),
        said="hymical: FORMS_DATABASE_URL is not set: it names the database,"
        " such as postgresql://user:password@host/database.\n",
        code=2,
    )


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://hymical:{PASSWORD}@127.0.0.1:notaport/hymical",
        f"postgresql://hymical:{PASSWORD}@127.0.0.1/hymical?no_such_option=1",
        f"postgresql://hymical:{PASSWORD}%zz@127.0.0.1/hymical",
    ],
)
def test_a_url_that_cannot_be_read_is_said_in_words_and_without_the_password(url: str) -> None:
    refuses(
        run_hymical("keys", "list", environment={"FORMS_DATABASE_URL": url}),
        said="hymical: FORMS_DATABASE_URL cannot be read as a URL: its port must be a number, its options those of"
        " PostgreSQL, and special characters in a user name or password percent-encoded.\n",
        code=2,
    )


def test_a_port_that_is_taken(site: Site) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        refuses(
            site.run("serve", "--port", str(port)),
            said=f"hymical: cannot listen on 127.0.0.1 port {port}: address already in use;"
            " --host and --port choose another\n",
            code=1,
        )


def test_an_api_whose_application_does_not_start_ends_with_a_code(empty_database_url: str) -> None:
    # as when the database changes between the first look at it and the application's own
    code = (
        "import asyncio, socket, sys; from hymical.entrypoints.api.serve import serve;"
        "from hymical.entrypoints.bootstrap.settings import load_settings;"
        "asyncio.run(serve(load_settings(), socket.create_server(('127.0.0.1', 0))))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "FORMS_DATABASE_URL": empty_database_url},
        capture_output=True,
        check=False,
        timeout=30,
    )
    assert ended.returncode == 3


@pytest.mark.parametrize("command", [(), ("serve",), ("worker",), ("migrate",), ("keys",)], ids=str)
def test_help_needs_no_settings(command: tuple[str, ...], tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "hymical", *command, "--help"],
        env={name: value for name, value in os.environ.items() if not name.startswith("FORMS_")},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    assert ended.stdout.startswith("Usage: ")
    assert ended.stderr == ""


def test_starting_never_migrates_by_itself_and_migrate_does(databases: Databases) -> None:
    with databases.empty() as url, Site(url) as site:
        assert site.run("serve", "--port", "0").returncode == 1
        assert site.query("SELECT to_regclass('forms') IS NULL") == [(True,)]
        migrated = site.run("migrate")
        assert (migrated.returncode, migrated.stdout) == (0, f"the database is at migration {REVISION}\n")
        site.start_api()
        assert site.public.get("/ready").json() == {"status": "ready"}


async def test_an_api_whose_database_moved_on_is_not_ready_and_says_why(site: Site) -> None:
    api = site.start_api()
    await until(lambda: site.public.get("/ready").is_success, "it is ready")
    site.execute("UPDATE alembic_version SET version_num = '9999'")
    answer = site.public.get("/ready")
    assert (answer.status_code, answer.json()["code"]) == (503, "storage_unavailable")
    assert answer.json()["detail"] == f"T{newer()[1:].replace(';', ':')}."
    await until(lambda: api.says("SchemaMismatch: The database is at migration 9999"), "it is logged")


def test_migrating_twice_changes_nothing(database_url: str) -> None:
    ended = Site(database_url).run("migrate")
    assert (ended.returncode, ended.stdout) == (0, f"the database is at migration {REVISION}\n")


def test_a_database_of_a_newer_build_is_not_migrated_and_the_sentence_says_why(site: Site) -> None:
    site.execute("UPDATE alembic_version SET version_num = '9999'")
    refuses(
        site.run("migrate"),
        said=f"hymical: {newer()}\n",
        code=1,
    )


def test_a_demo_is_not_touched_by_the_settings_of_a_site(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("FORMS_WORKER_BATCH_SIZE=0\n", encoding="utf-8")
    ended = subprocess.run(
        [sys.executable, "-m", "hymical", "demo"],
        env={**os.environ, "FORMS_MAX_FIELDS": "0"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert ended.returncode == 0, ended.stderr
    assert "signature verified" in ended.stdout
