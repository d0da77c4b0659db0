"""Server: configures a site for one person or a team, and serves it until the program is stopped."""

from __future__ import annotations

import asyncio
import gc
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import uvicorn

from fraudlake.errors import UsageError
from fraudlake.lake.store import Store
from fraudlake.process import stop
from fraudlake_desk.web import connections
from fraudlake_desk.web.access import ProxyAccess, TokenAccess
from fraudlake_desk.web.role import Role, RoleByFile, RoleByGroup, SameRole
from fraudlake_desk.web.site import Site

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from fraudlake.settings import Settings
    from fraudlake_desk.web.role import Roles

_ADDRESS = 1 << 20
"""Most bytes of an address and its headers: enough to search for a name of 70,000 letters, percent-encoded."""
LOOPBACK = ("127.0.0.1", "::1", "localhost")


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket; port 0 means any free port.

    Raises:
        UsageError: the address cannot be used.
    """
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        made = socket.socket(family, socket.SOCK_STREAM)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
        made.listen()  # requests wait from now on, and are not refused
    except OSError as error:
        raise UsageError(f"cannot listen on {host}:{port} ({error.strerror}): give another --port") from None
    return made


def site_of_one(
    store: Store,
    name: str,
    role: Role,
    address: tuple[str, int],
    activity: Callable[[], Mapping[str, Any]] | None = None,
    public_url: str | None = None,
    renewed: Callable[[str], None] = lambda token: None,
) -> tuple[Site, TokenAccess]:
    """Return the site for one person, and its access, which has the token.

    Args:
        store: the tables.
        name: the person's name.
        role: the person's role.
        address: host and port.
        activity: :attr:`Site.activity`.
        public_url: the address of the site if it is behind a proxy.
        renewed: called with the next token after one was used.
    """
    host, port = address
    access = TokenAccess(name, role, _names(host), port, public_url, renewed)
    return Site(lambda person: store, access, activity), access


def site_of_team(store: Store, most: Role, host: str, activity: Callable[[], Mapping[str, Any]] | None = None) -> Site:
    """Return the site for people whom a proxy authenticates, as the settings of the lake say.

    Args:
        store: the tables.
        most: the highest role that anybody gets, such as reader.
        host: the address that the desk listens on.
        activity: :attr:`Site.activity`.

    Raises:
        UsageError: the settings lack the proxy, its public address or the roles, or contradict each other.
    """
    settings = store.settings
    if settings.user_header is None or settings.public_url is None or not settings.proxies:
        raise UsageError("--user-header needs --public-url, and --trusted-proxies with the addresses that may set it")
    proxies = settings.proxies
    header = settings.user_header
    roles = _roles(settings)
    names = _names(host)
    access = ProxyAccess(header, proxies, roles, names, settings.public_url, settings.groups_header, most)
    return Site(lambda person: store, access, activity)


def _roles(settings: Settings) -> Roles:
    """Return the roles of a team by the settings; by default everybody is an analyst."""
    has_groups = bool(settings.analysts or settings.leads)
    if (settings.rule_authors or settings.approvers) and not has_groups:
        raise UsageError("--rule-author-groups and --approver-groups add to --analyst-groups: give these, too")
    if settings.people and (has_groups or settings.groups_header):
        raise UsageError("--people names who is what, and so do the proxy's groups: give one of them")
    if has_groups != bool(settings.groups_header):
        raise UsageError("--groups-header needs --analyst-groups or --lead-groups, and these need it")
    if settings.people:
        return RoleByFile(settings.people)
    return role_by_group(settings) if has_groups else SameRole(Role.ANALYST)


def role_by_group(settings: Settings) -> RoleByGroup:
    """Return the roles by the groups that the settings name."""
    return RoleByGroup(settings.analysts, settings.leads, settings.rule_authors, settings.approvers)


def _names(host: str) -> tuple[str, ...]:
    """Return the host names that a request may use; empty for any."""
    return LOOPBACK if host in LOOPBACK else ()


class _Server(uvicorn.Server):
    """A server that finishes the requests in progress, and ends, when the program is stopped."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the program."""
        with stop.deferred():
            yield

    async def on_tick(self, counter: int) -> bool:
        """Return whether to end; Uvicorn calls this ten times a second."""
        connections.end_waiting(self.server_state.connections, asyncio.get_running_loop().time())
        return await super().on_tick(counter) or stop.is_requested()


def serve(app: ASGIApp, listening: socket.socket, is_proxy: Callable[[str], bool]) -> None:
    """Answer requests until the program is stopped.

    Args:
        app: the application.
        listening: the socket that listens.
        is_proxy: see :attr:`connections.Connection.is_proxy`.
    """
    config = uvicorn.Config(
        app,
        http=connections.protocol(is_proxy),
        timeout_keep_alive=int(connections.WAIT),
        log_level="warning",
        access_log=False,
        server_header=False,
        lifespan="off",
        h11_max_incomplete_event_size=_ADDRESS,
        proxy_headers=False,
        timeout_graceful_shutdown=10,
    )

    # Modules are never freed, and scanning them for garbage would take a tenth of the processor time.
    gc.freeze()
    asyncio.run(_Server(config).serve([listening]))
