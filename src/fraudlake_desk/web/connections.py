"""Connections: limits how long each may wait for a request, and how many an address has, against denial of service."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.h11_impl import H11Protocol

if TYPE_CHECKING:
    import asyncio

WAIT = 20.0
"""Seconds from the connection or the last answer within which the headers of a request must arrive."""
OF_ADDRESS = 50
ALL = 500
"""Most connections of an address that is not a proxy, and in total. Browsers open six."""


class Connection(H11Protocol):
    """A connection with the limits that Uvicorn lacks (0.54): connections of an address, and time to send headers."""

    is_proxy: Callable[[str], bool]
    """Returns whether an address is that of a proxy, which many people share."""
    since = 0.0
    """When it began to wait for a request, in seconds of the event loop."""

    @property
    def address(self) -> str:
        """The address of the client."""
        return self.client[0] if self.client else ""

    @property
    def is_waiting(self) -> bool:
        """Whether no request is being answered."""
        return self.cycle is None or self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as in Uvicorn
        """Begin to wait; if there are too many connections, close the one that has waited longest."""
        super().connection_made(transport)
        self.since = self.loop.time()
        present = _open(self.connections)
        own = [one for one in present if one.address == self.address]
        is_too_many_of_address = len(own) > OF_ADDRESS and not self.is_proxy(self.address)
        if is_too_many_of_address or len(present) > ALL:
            waiting = [one for one in (own if is_too_many_of_address else present) if one.is_waiting]
            min(waiting, key=lambda one: one.since).transport.close()

    def on_response_complete(self) -> None:
        """Begin to wait again."""
        self.since = self.loop.time()
        super().on_response_complete()


def protocol(of_proxy: Callable[[str], bool]) -> type[Connection]:
    """Return the class of a server's connections, with the test for addresses of proxies."""

    class OfServer(Connection):
        is_proxy = staticmethod(of_proxy)

    return OfServer


def end_waiting(connections: Iterable[Any], now: float) -> None:
    """Close the connections that have waited for too long."""
    for one in _open(connections):
        if one.is_waiting and now - one.since > WAIT:
            one.transport.close()


def _open(connections: Iterable[Any]) -> list[Connection]:
    return [one for one in connections if isinstance(one, Connection) and not one.transport.is_closing()]
