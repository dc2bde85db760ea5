"""Running the API in this process."""

import signal
import socket

import uvicorn

from hymical.entrypoints.api.app import create_app
from hymical.entrypoints.bootstrap.settings import Settings

_DID_NOT_START = 3
"""The exit code that uvicorn itself uses for it."""


async def serve(settings: Settings, listener: socket.socket) -> None:
    """Answers on an open socket until SIGTERM or SIGINT; requests in flight are answered first.

    Raises:
        SystemExit: the application did not start; why is in the log.
    """
    server = uvicorn.Server(
        uvicorn.Config(
            create_app(settings),
            http="httptools",
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=75,
            timeout_graceful_shutdown=30,
        )
    )
    # uvicorn raises the signal again once it has shut down; that must not turn a clean exit into a killed one
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    await server.serve(sockets=[listener])
    if not server.started:
        raise SystemExit(_DID_NOT_START)
