"""Connections: who opens many of them, or sends headers slowly, does not shut others out; on real sockets."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from http.client import HTTPConnection
from pathlib import Path

import pytest
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from fraudlake.lake.local_store import LocalStore
from fraudlake.process import stop
from fraudlake.settings import Settings
from fraudlake_desk.web import connections, server
from fraudlake_desk.web.application import application
from fraudlake_desk.web.role import Role

HALF = b"GET / HTTP/1.1\r\nhost: 127.0.0.1\r\n"
STRANGER, PROXY = "127.0.0.2", "127.0.0.3"
Connect = Callable[..., socket.socket]


Serve = Callable[[ASGIApp], int]


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Serve]:
    """Serve an application until the test ends, and return its port; a proxy is at one address."""
    ended, threads = threading.Event(), []
    monkeypatch.setattr(stop, "is_requested", ended.is_set)

    def start(app: ASGIApp) -> int:
        listening = server.listen("127.0.0.1", 0)
        threads.append(threading.Thread(target=server.serve, args=(app, listening, PROXY.__eq__)))
        threads[-1].start()
        return int(listening.getsockname()[1])

    yield start
    ended.set()
    for thread in threads:
        thread.join()


@pytest.fixture
def port(root: Path, serve: Serve) -> int:
    """The port of a desk."""
    site, _ = server.site_of_one(LocalStore(Settings(lake=root)), "anna", Role.LEAD, ("127.0.0.1", 0))
    return serve(application(site))


@pytest.fixture
def connect(port: int) -> Iterator[Connect]:
    """Connect to the desk from an address of this machine."""
    with ExitStack() as opened:

        def open_(address: str, sent: bytes = b"") -> socket.socket:
            one = socket.create_connection(("127.0.0.1", port), 10, source_address=(address, 0))
            opened.enter_context(one)
            one.sendall(sent)
            return one

        yield open_


def status(port: int, address: str = "127.0.0.1") -> int:
    """Ask for a file of the pages."""
    asked = HTTPConnection("127.0.0.1", port, timeout=10, source_address=(address, 0))
    asked.request("GET", "/static/desk.css")
    answer = asked.getresponse().status
    asked.close()
    return answer


def is_open(one: socket.socket, seconds: float = 0.01) -> bool:
    """Whether the desk has not closed a connection."""
    one.settimeout(seconds)
    try:
        return one.recv(1) != b""
    except TimeoutError:
        return True
    except ConnectionResetError:
        return False


def test_half_open_connections_of_an_address_shut_nobody_out(port: int, connect: Connect) -> None:
    half = [connect(STRANGER, HALF) for _ in range(210)]
    assert status(port) == 200
    assert status(port, STRANGER) == 200  # for who sends a request, the one that waits longest ends
    remaining = [is_open(one) for one in half]
    assert sum(remaining) == connections.OF_ADDRESS - 1 and not any(remaining[:150])


def test_a_proxy_has_the_connections_of_many_people(port: int, connect: Connect) -> None:
    half = [connect(PROXY, HALF) for _ in range(2 * connections.OF_ADDRESS)]
    assert status(port, PROXY) == 200
    assert all(is_open(one) for one in half)


def test_all_addresses_together_shut_nobody_out(port: int, connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "ALL", 40)
    half = [connect(f"127.0.1.{number % 20 + 1}", HALF) for number in range(100)]
    assert status(port) == 200
    assert sum(is_open(one) for one in half) == 39


@pytest.mark.slow
@pytest.mark.parametrize("sent", [b"", HALF, b"GET /static/desk.css HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"])
def test_who_sends_no_request_is_left_after_a_time(
    port: int, connect: Connect, sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "WAIT", 0.5)
    begun, one = time.monotonic(), connect(STRANGER, sent)
    if sent.endswith(b"\r\n\r\n"):
        while not one.recv(1 << 20).endswith(b"}\n"):
            pass
    while is_open(one, 0.1):
        assert time.monotonic() - begun < 10
        if sent == HALF:  # a letter at a time does not make it longer
            one.sendall(b"x")
    assert time.monotonic() - begun >= 0.4


@pytest.mark.slow
def test_a_request_that_takes_long_is_answered(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        await asyncio.sleep(1)
        await Response("done")(scope, receive, send)

    monkeypatch.setattr(connections, "WAIT", 0.2)
    assert status(serve(slow)) == 200
