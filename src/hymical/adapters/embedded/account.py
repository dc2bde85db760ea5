"""The operating system's user that runs the server: the caller, or an unprivileged one for root."""

import os
import pwd
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from hymical.adapters.embedded.errors import EmbeddedServerError

# nothing of the caller's PG* variables, locale or time zone may reach the server
_ENVIRONMENT = {"LC_ALL": "C.UTF-8", "PATH": os.defpath}


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerAccount:
    uid: int
    gid: int
    differs: bool
    """Whether this is another user than the caller."""

    def start(
        self,
        arguments: Sequence[str | Path],
        *,
        stdin: int = subprocess.DEVNULL,
        output: int | IO[bytes] = subprocess.DEVNULL,
    ) -> subprocess.Popen[bytes]:
        """Starts a program as this user, in a session of its own: a Ctrl-C is for its owner to handle."""
        return subprocess.Popen(
            arguments,
            stdin=stdin,
            stdout=output,
            stderr=output,
            cwd="/",
            env=_ENVIRONMENT,
            umask=0o077,
            start_new_session=True,
            user=self.uid if self.differs else None,
            group=self.gid if self.differs else None,
            extra_groups=[] if self.differs else None,
        )

    def succeeds(self, arguments: Sequence[str | Path]) -> bool:
        """Whether this user can run a program to success."""
        try:
            with self.start(arguments) as program:
                return program.wait() == 0
        except OSError:
            return False

    def reaches(self, folder: Path) -> bool:
        return not self.differs or self.succeeds(["/bin/sh", "-c", 'test -x "$1"', "sh", folder])

    def take(self, path: Path) -> None:
        """Gives a file or folder of the caller to this user."""
        if self.differs:
            os.chown(path, self.uid, self.gid, follow_symlinks=False)


def server_account() -> ServerAccount:
    """PostgreSQL refuses to run as root; `nobody` exists everywhere and owns nothing else."""
    if os.geteuid() != 0:
        return ServerAccount(uid=os.geteuid(), gid=os.getegid(), differs=False)
    try:
        nobody = pwd.getpwnam("nobody")
    except KeyError:
        raise EmbeddedServerError(
            "root cannot run PostgreSQL, and there is no user `nobody` to run it"
        ) from None
    account = ServerAccount(uid=nobody.pw_uid, gid=nobody.pw_gid, differs=True)
    if not account.succeeds(["/bin/sh", "-c", ":"]):
        raise EmbeddedServerError("root cannot run PostgreSQL, and may not start programs as `nobody` here")
    return account
