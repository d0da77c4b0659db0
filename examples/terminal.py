"""Terminal: sends lines to the clients of a port of this machine, as if typed into ``nc -lk``."""

from __future__ import annotations

import socket
from types import TracebackType


class Terminal:
    """A listener on loopback that sends lines to the last one who connected."""

    def __init__(self, port: int) -> None:
        """Listen on ``port``; with 0 on one that is free."""
        self._listener = socket.create_server(("127.0.0.1", port))
        self.port: int = self._listener.getsockname()[1]
        self._reader: socket.socket | None = None

    def write(self, line: str) -> None:
        """Send a line; the first waits until somebody has connected."""
        if self._reader is None:
            self._reader = self._listener.accept()[0]
        self._reader.sendall(f"{line}\n".encode())

    def __enter__(self) -> Terminal:
        """Return the terminal."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Stop listening."""
        if self._reader is not None:
            self._reader.close()
        self._listener.close()
