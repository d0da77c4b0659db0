"""Connections: each waits so long for a request, and an address has so many, so that nobody shuts others out."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.h11_impl import H11Protocol

if TYPE_CHECKING:
    import asyncio

WAIT = 20.0
"""Seconds, from the beginning or the last answer, in which the headers of a request must have come."""
OF_ADDRESS, ALL = 50, 500
"""Connections of an address that is no proxy, and of all. Browsers open six."""


class Connection(H11Protocol):
    """A connection of Uvicorn, which limits neither what an address opens nor how long it sends headers (0.54)."""

    is_proxy: Callable[[str], bool]
    """Returns whether an address is that of a proxy, whose connections are those of many people."""
    since = 0.0
    """When it began to wait for a request, in seconds of the event loop."""

    @property
    def address(self) -> str:
        """The address of who opened it."""
        return self.client[0] if self.client else ""

    @property
    def is_waiting(self) -> bool:
        """Whether no request is being answered."""
        return self.cycle is None or self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as in Uvicorn
        """Begin to wait; who has waited longest ends if there are too many."""
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
    """Return the class of a server's connections, which knows the addresses of proxies."""

    class OfServer(Connection):
        is_proxy = staticmethod(of_proxy)

    return OfServer


def end_waiting(connections: Iterable[Any], now: float) -> None:
    """End the connections that have waited for too long."""
    for one in _open(connections):
        if one.is_waiting and now - one.since > WAIT:
            one.transport.close()


def _open(connections: Iterable[Any]) -> list[Connection]:
    return [one for one in connections if isinstance(one, Connection) and not one.transport.is_closing()]
