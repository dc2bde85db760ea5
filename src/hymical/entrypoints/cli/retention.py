"""`hymical cleanup`: what the clean-up job does, at once."""

import json
from typing import TYPE_CHECKING

import click

from hymical.entrypoints.cli.options import as_json
from hymical.entrypoints.cli.outcome import with_container

if TYPE_CHECKING:
    from hymical.domain.retention import CleanUpState
    from hymical.entrypoints.bootstrap.container import Container


@click.command(short_help="Remove what is over and old.")
@as_json
def cleanup(*, as_json: bool) -> None:
    """Remove what FORMS_SUBMISSION_RETENTION_DAYS and FORMS_HISTORY_RETENTION_DAYS no longer keep."""
    from hymical.domain.retention import Kind  # noqa: PLC0415

    done = with_container(_clean_up)
    removed = {kind.value: done.removed.get(kind, 0) for kind in Kind}
    if as_json:
        print(json.dumps(removed))
        return
    for kind, count in removed.items():
        print(f"{kind.replace('_', ' ')}: {count} removed")


async def _clean_up(container: "Container") -> "CleanUpState":
    from hymical.domain.retention import CleanUpState  # noqa: PLC0415

    return await container.clean_up()(CleanUpState(), _unnoted)


async def _unnoted(state: "CleanUpState") -> None:
    """Stopped in the middle, it begins anew: what was removed is not looked at again."""
