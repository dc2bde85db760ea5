"""One owner at a time for a data folder."""

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hymical.adapters.embedded.errors import AlreadyOwned


@contextmanager
def sole_owner(lock: Path, url: str) -> Iterator[None]:
    """Holds the lock file, with the owner's pid and url inside; the kernel frees it when the owner dies.

    Raises:
        AlreadyOwned: another owner holds it.
    """
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise _owner(descriptor) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps({"pid": os.getpid(), "url": url}).encode(), 0)
        try:
            yield
        finally:
            os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)


def _owner(descriptor: int) -> AlreadyOwned:
    # an owner that has only just locked writes its name in the next instant
    for _ in range(100):
        text = os.pread(descriptor, 4096, 0)
        if text.endswith(b"}"):
            return AlreadyOwned(**json.loads(text))
        time.sleep(0.01)
    return AlreadyOwned(pid=0, url="an unknown address")
