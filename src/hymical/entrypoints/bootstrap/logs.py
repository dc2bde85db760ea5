"""How the processes log: one line an event, to standard error."""

import logging
import time


def set_up_logs() -> None:
    """UTC times; warnings and up from libraries, everything from INFO on from Hymical."""
    formatter = logging.Formatter(
        "%(asctime)s.%(msecs)03dZ %(levelname)s %(name)s: %(message)s", "%Y-%m-%dT%H:%M:%S"
    )
    formatter.converter = time.gmtime
    handler = logging.StreamHandler()
    handler.setFormatter(formatter)
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("hymical").setLevel(logging.INFO)
