"""A small receiver of webhooks that verifies them independently, for demo and dev."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from standardwebhooks.webhooks import Webhook, WebhookVerificationError


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """One webhook as it came over the wire; `verified` is what the `standardwebhooks` package says."""

    headers: tuple[tuple[str, str], ...]
    body: bytes
    verified: bool


class Receiver:
    """Answers webhooks with 204 once `secret` is set and verifies them, else with 401; may serve one page."""

    def __init__(self, on_webhook: Callable[[Received], None], page: Callable[[], str] | None = None) -> None:
        self.secret: str | None = None
        self.on_webhook = on_webhook
        self.page = page
        self.url = ""

    def verifies(self, headers: tuple[tuple[str, str], ...], body: bytes) -> bool:
        if self.secret is None:
            return False
        try:
            Webhook(self.secret).verify(body, {name.lower(): value for name, value in headers})
        except (WebhookVerificationError, json.JSONDecodeError):
            return False
        return True


@contextmanager
def receiving(receiver: Receiver, port: int = 0) -> Iterator[Receiver]:
    """Serves on loopback for as long as the block is open; `receiver.url` is its address."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", "0")))
            headers = tuple(self.headers.items())
            verified = receiver.verifies(headers, body)
            self.send_response(204 if verified else 401)
            self.send_header("content-length", "0")
            self.end_headers()
            receiver.on_webhook(Received(headers=headers, body=body, verified=verified))

        def do_GET(self) -> None:
            page = receiver.page() if receiver.page is not None and self.path == "/" else None
            content = (page or "There is nothing here.").encode()
            self.send_response(200 if page else 404)
            self.send_header("content-type", f"text/{'html' if page else 'plain'}; charset=utf-8")
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:  # noqa: ANN401  the library's signature
            pass

    with ThreadingHTTPServer(("127.0.0.1", port), Handler) as server:
        server.daemon_threads = True
        receiver.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield receiver
        finally:
            server.shutdown()
            thread.join()
