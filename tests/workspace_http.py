"""The HTTP boundary of a workspace that a test plays: requests on loopback become replies."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

TOKEN = "dapi-of-the-tests"
LATE = 0
"""The status of a reply that comes later than clients wait."""


@dataclass(frozen=True)
class Request:
    """One request; ``data`` is its body."""

    method: str
    path: str
    query: dict[str, str]
    data: bytes
    content_type: str
    is_authorized: bool

    @property
    def body(self) -> Any:
        """The body: parsed if it is JSON, else bytes; None if there is none."""
        return json.loads(self.data) if self.data and "json" in self.content_type else self.data or None


@dataclass(frozen=True)
class Reply:
    """A status, a body (bytes and text as they are, all else as JSON) and headers."""

    status: int
    body: Any = None
    headers: tuple[tuple[str, str], ...] = ()


UNAUTHENTICATED = Reply(401, {"error_code": "UNAUTHENTICATED", "message": "Credential was not sent"})


@contextmanager
def serving(reply_to: Callable[[Request], Reply]) -> Iterator[str]:
    """Serve on a free port of loopback for the length of the block; return the address."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # head and body go out one after the other

        def _serve(self) -> None:
            address = urlsplit(self.path)
            reply = reply_to(
                Request(
                    self.command,
                    address.path,
                    dict(parse_qsl(address.query)),
                    self._body(),
                    self.headers.get("Content-Type", ""),
                    self.headers.get("Authorization") == f"Bearer {TOKEN}",
                )
            )
            if reply.status == LATE:
                time.sleep(1.5)
            text = reply.body if isinstance(reply.body, str | bytes) else json.dumps(reply.body)
            raw = b"" if reply.body is None else text if isinstance(text, bytes) else text.encode()
            self.send_response(reply.status or 500)
            for name, value in (("Content-Type", "application/json"), ("Content-Length", str(len(raw)))):
                self.send_header(name, value)
            for name, value in reply.headers:
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(raw)

        def _body(self) -> bytes:
            if self.headers.get("Transfer-Encoding") != "chunked":
                return self.rfile.read(int(self.headers.get("Content-Length") or 0))
            parts = []
            while length := int(self.rfile.readline(), 16):
                parts.append(self.rfile.read(length))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(parts)

        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = do_PATCH = _serve  # noqa: N815 - http.server's names

        def log_message(self, *_: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: Any, client_address: Any) -> None:
            pass  # a client that gave up waiting

    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
