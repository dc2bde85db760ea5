"""Running the API in this process."""

import asyncio
import signal
import socket

import uvicorn
from litestar import Litestar

from hymical.entrypoints.api.app import create_app
from hymical.entrypoints.bootstrap.garbage import collect_less_often
from hymical.entrypoints.bootstrap.settings import Settings

_DID_NOT_START = 3
"""The exit code that uvicorn itself uses for it."""

_TO_READ_SECONDS = 5.0
_TO_ANSWER_SECONDS = 30


class _Server(uvicorn.Server):
    def __init__(self, app: Litestar, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._app = app

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # every answer is waited for, and a stream ends only when it is told to
        self._app.state.job_feeds.close()
        asyncio.get_running_loop().call_later(_TO_READ_SECONDS, self._cut_off)
        await super().shutdown(sockets)

    def _cut_off(self) -> None:
        """Who does not read what is sent would be waited for until the time is up."""
        for connection in list(self.server_state.connections):
            if connection.transport.get_write_buffer_size():
                connection.transport.abort()


async def serve(settings: Settings, listener: socket.socket) -> None:
    """Answers on an open socket until SIGTERM or SIGINT; requests in flight are answered first, streams end.

    Raises:
        SystemExit: the application did not start; why is in the log.
    """
    app = create_app(settings)
    server = _Server(
        app,
        uvicorn.Config(
            app,
            http="httptools",
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=75,
            timeout_graceful_shutdown=_TO_ANSWER_SECONDS,
        ),
    )
    # uvicorn raises the signal again once it has shut down; that must not turn a clean exit into a killed one
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    collect_less_often()
    await server.serve(sockets=[listener])
    if not server.started:
        raise SystemExit(_DID_NOT_START)
