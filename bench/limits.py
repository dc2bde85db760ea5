"""What intake is held against, served as `hymical serve` serves: `python -m bench.limits no-op|parsing`."""

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from litestar import Litestar, Request, Response, post

from hymical.adapters.system.ids import SystemIds
from hymical.domain.forms import Form, PostedForm, accept
from hymical.domain.ids import FormId
from hymical.entrypoints.api import serve
from hymical.entrypoints.api.bodies import read_pairs
from hymical.entrypoints.bootstrap.settings import Settings
from hymical.entrypoints.cli.outcome import run_or_fail
from hymical.entrypoints.processes import child_environment

_READY = "limit on "
_SETTINGS = Settings(database_url="postgresql://", _env_file=None)  # type: ignore[arg-type,call-arg]
_LIMITS = _SETTINGS.intake_limits
_IDS = SystemIds()


@post("/f/{form_id:str}", status_code=202)
async def no_op(form_id: str) -> Response[bytes]:
    del form_id
    return Response(b"{}", media_type="application/json")


@post("/f/{form_id:str}", status_code=202, request_max_body_size=None)
async def parsing(form_id: str, request: Request[Any, Any, Any]) -> Response[bytes]:
    """Reads and judges a post as the intake does, and stores nothing."""
    headers = request.headers
    pairs = await read_pairs(
        headers.get("content-type"), headers.get("content-length"), request.stream(), _LIMITS
    )
    now = datetime.now(UTC)
    submission = accept(
        Form(id=FormId(form_id), name=form_id, is_active=True, created_at=now),
        PostedForm(form_id=FormId(form_id), pairs=pairs),
        limits=_LIMITS,
        duplicate_window=timedelta(seconds=10),
        submission_id=_IDS.submission(),
        received_at=now,
    )
    return Response(submission.id.encode(), media_type="application/json")


@contextmanager
def serving(kind: str) -> Iterator[int]:
    """Its port, while it runs in a process of its own."""
    with subprocess.Popen(
        [sys.executable, "-m", "bench.limits", kind],
        env=child_environment({}),
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None  # noqa: S101  a pipe
        try:
            yield int(process.stdout.readline().removeprefix(_READY))
        finally:
            process.terminate()


def main(kind: str) -> None:
    route = {"no-op": no_op, "parsing": parsing}[kind]
    app = Litestar(route_handlers=[route], openapi_config=None, logging_config=None)
    # the real server closes these when it stops
    app.state.job_feeds = ExitStack()
    # so that the settings of its server are the real ones, whatever they become
    vars(serve)["create_app"] = lambda _: app
    listener = socket.create_server(("127.0.0.1", 0), backlog=2_048)
    print(f"{_READY}{listener.getsockname()[1]}", flush=True)
    run_or_fail(serve.serve(_SETTINGS, listener))


if __name__ == "__main__":
    main(sys.argv[1])
