"""Receiver: a webhook's other end on loopback, with a given behaviour for each request."""

from __future__ import annotations

import json
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

HANGS, RESETS = "hangs", "resets"
"""Behaviours that give no answer; a number of seconds is a slow answer, and any other is a status with headers."""

Behaviour = str | float | tuple[int, dict[str, str]]


def status(code: int, **headers: str) -> Behaviour:
    return code, {name.replace("_", "-"): value for name, value in headers.items()}


@dataclass
class Request:
    """A request as it came, and when, by the monotonic clock."""

    headers: dict[str, str]
    body: bytes
    at: float

    @property
    def events(self) -> list[dict[str, Any]]:
        events: list[dict[str, Any]] = json.loads(self.body)
        return events


@dataclass
class Receiver:
    """What came, and how the next requests are treated: as ``plan`` says, then as ``always``, which is to take them."""

    url: str = ""
    plan: deque[Behaviour] = field(default_factory=deque)
    always: Behaviour = 0.0
    requests: list[Request] = field(default_factory=list)
    taken: list[Request] = field(default_factory=list)
    """The requests that were answered with 2xx."""
    ended: threading.Event = field(default_factory=threading.Event)

    @property
    def events(self) -> list[dict[str, Any]]:
        """The events that were taken over, in the order of their arrival."""
        return [event for request in self.taken for event in request.events]


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print nothing: clients that hang up are part of the plan."""


@contextmanager
def listening(port: int = 0) -> Iterator[Receiver]:
    """Listen on a port of this machine for the length of the block."""
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            length = int(self.headers["content-length"])
            body = self.rfile.read(length)
            if len(body) < length:  # the client was killed meanwhile
                return
            headers = {name.lower(): value for name, value in self.headers.items()}
            request = Request(headers, body, time.monotonic())
            receiver.requests.append(request)
            behaviour = receiver.plan.popleft() if receiver.plan else receiver.always
            if behaviour == HANGS:
                receiver.ended.wait(60)
            elif behaviour == RESETS:
                # Without lingering, closing sends RST instead of FIN.
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                self.connection.close()
            elif isinstance(behaviour, tuple):
                if 200 <= behaviour[0] < 300:
                    receiver.taken.append(request)
                self._answer(*behaviour)
            else:
                time.sleep(float(behaviour))
                receiver.taken.append(request)
                self._answer(204, {})

        def _answer(self, code: int, headers: dict[str, str]) -> None:
            self.send_response(code)
            for name, value in {"content-length": "0", **headers}.items():
                self.send_header(name, value)
            self.end_headers()

        def log_message(self, format: str, *arguments: Any) -> None:
            pass

    server = _Server(("127.0.0.1", port), Handler)
    receiver.url = f"http://127.0.0.1:{server.server_port}/alerts/secret-path?token=secret-token"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield receiver
    finally:
        receiver.ended.set()
        server.shutdown()
        server.server_close()
        thread.join()
