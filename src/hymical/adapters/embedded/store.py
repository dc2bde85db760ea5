"""Root's own folder for what the server's user must reach and cannot reach where the caller keeps it."""

import os
import stat
from pathlib import Path

from hymical.adapters.embedded.account import ServerAccount
from hymical.adapters.embedded.errors import EmbeddedServerError

# not below /var/tmp: there anyone may take a name first, and clean-ups remove what lies untouched for a month
STORE = Path("/var/lib/hymical")


def open_store(account: ServerAccount) -> Path:
    """The store, made if missing; refuses one that others than the caller may write to."""
    made = not STORE.exists()
    STORE.mkdir(parents=True, exist_ok=True)
    if made:
        STORE.chmod(0o755)
    found = STORE.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise EmbeddedServerError(f"{STORE} must be a folder that only root may write to")
    if not account.reaches(STORE):
        raise EmbeddedServerError(f"the server's user cannot reach {STORE}")
    return STORE
