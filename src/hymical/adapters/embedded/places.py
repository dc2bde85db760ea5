"""Where a server keeps its data, its log, its lock and its socket."""

import os
import re
import stat
import tempfile
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from hymical.adapters.embedded.account import ServerAccount
from hymical.adapters.embedded.errors import EmbeddedServerError
from hymical.adapters.embedded.store import open_store

SOCKET = ".s.PGSQL.5432"
# macOS has the shortest `sun_path`, 104 bytes with the final NUL
_SOCKET_PATH_BYTES = 103
# libpq splits hosts at commas, SQLAlchemy at colons
_PLAIN_PATH = re.compile(r"[A-Za-z0-9/._+-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    cluster: Path
    """PostgreSQL's data directory."""
    sockets: Path

    @property
    def lock(self) -> Path:
        return self.cluster.with_name(f"{self.cluster.name}.lock")

    @property
    def log(self) -> Path:
        return self.cluster.with_name(f"{self.cluster.name}.log")

    def open_sockets(self, account: ServerAccount) -> None:
        """Makes the folder of the socket, which only the server's user and root can enter."""
        if self.sockets == self.cluster:
            return
        self.sockets.mkdir(mode=0o700, exist_ok=True)
        found = self.sockets.lstat()
        ours = found.st_uid in {os.geteuid(), account.uid}
        if not stat.S_ISDIR(found.st_mode) or not ours or found.st_mode & 0o077:
            raise EmbeddedServerError(
                f"{self.sockets} is in the way: it must be a folder of the server alone"
            )
        account.take(self.sockets)

    def close_sockets(self) -> None:
        if self.sockets != self.cluster and self.sockets.exists():
            self.sockets.rmdir()


def place_for(data_folder: Path, account: ServerAccount) -> Place:
    """The place of a data folder's server, which is made if missing.

    The cluster is `data_folder/postgres`. If the server's user cannot reach that, it is below the store, and
    `data_folder/postgres` is a symbolic link to it; no folder's permissions are changed for it.
    """
    data_folder.mkdir(parents=True, exist_ok=True)
    cluster = data_folder.resolve() / "postgres"
    if not account.differs:
        cluster = cluster.resolve()
    elif cluster.is_symlink() or not account.reaches(cluster.parent):
        cluster = _cluster_in_store(cluster, account)
    return Place(cluster=cluster, sockets=_sockets_of(cluster))


def _cluster_in_store(link: Path, account: ServerAccount) -> Path:
    clusters = open_store(account) / "clusters"
    if not link.is_symlink():
        if link.exists():
            raise EmbeddedServerError(f"the server's user cannot reach {link}; open the folders above it")
        if not clusters.exists():
            clusters.mkdir(exist_ok=True)
            clusters.chmod(0o711)
        link.symlink_to(tempfile.mkdtemp(prefix="cluster-", dir=clusters))
    cluster = link.readlink()
    # the data folder may be another user's, and root follows no link of theirs
    if cluster.parent != clusters or ".." in cluster.parts:
        raise EmbeddedServerError(f"{link} does not lead to a folder below {clusters}")
    return cluster


def _sockets_of(cluster: Path) -> Path:
    path = str(cluster / SOCKET)
    if _PLAIN_PATH.fullmatch(path) and len(path) <= _SOCKET_PATH_BYTES:
        return cluster
    # not TMPDIR, which may be long itself, or closed to the server's user
    return Path("/tmp") / f"hymical-{sha256(os.fsencode(cluster)).hexdigest()[:16]}"  # noqa: S108
