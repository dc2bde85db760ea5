"""`python -m hymical.entrypoints.tethered COMMAND…`: a `hymical` command that ends when its starter is gone.

The starter holds the other end of standard input; when it dies, however it dies, the pipe closes.
"""

import os
import signal
import sys
import threading


def _end_with_starter() -> None:
    while os.read(sys.stdin.fileno(), 1_024):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    threading.Thread(target=_end_with_starter, daemon=True).start()
    from hymical.entrypoints.cli.main import main

    main(prog_name="hymical")
