"""How often a process that runs for long looks for garbage."""

import gc


def collect_less_often() -> None:
    """What has been loaded by now stays; to look through it again and again takes a tenth of a process's time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 100)
