"""The driver's own word on how it is: `GET /status` on a loopback port."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import msgspec


class Status:
    """What the driver says of itself; any thread may `set`, the server answers with a copy."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._facts: dict[str, Any] = {
            "ready": False,
            "state": "starting",
            "manifest": None,
            "reason": None,
        }

    def set(self, **facts: Any) -> None:
        with self._lock:
            self._facts.update(facts)

    def to_json(self) -> bytes:
        with self._lock:
            return msgspec.json.encode(self._facts)


def serve_status(status: Status, port: int) -> ThreadingHTTPServer:
    """Answer on 127.0.0.1 until the server is shut down; port 0 takes a free one."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path != "/status":
                self.send_error(404, "there is only /status here")
                return
            body = status.to_json()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """A question about health is no event."""

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, name="status", daemon=True).start()
    return server
