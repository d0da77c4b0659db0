"""Access: authenticates each request, and refuses those without a known person.

For a single user, the command prints an address with a token, which a browser exchanges once for a cookie. For a team,
a proxy authenticates people and names them in a header. In a workspace, Databricks Apps does so, in headers that no
browser can set.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from starlette.concurrency import run_in_threadpool
from starlette.responses import RedirectResponse, Response

from fraudlake_desk.web.errors import RefusedError
from fraudlake_desk.web.role import Role, SameRole

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from ipaddress import IPv4Network, IPv6Network

    from starlette.requests import Request

    from fraudlake_desk.web.role import Duty, Roles

_GROUPS_LIVE = 60.0
"""Seconds for which a person's groups are cached."""
BRIEF = 60.0
"""Seconds within which a browser that the command starts must open its page."""


@dataclass(frozen=True)
class Person:
    """An authenticated person."""

    name: str
    role: Role
    credentials: str | None = field(default=None, repr=False)
    """Their access token in a workspace, with which their queries run under their own rights."""
    session: str = field(default="", repr=False)
    """The value that the tokens of their forms are derived from."""
    duties: frozenset[Duty] = frozenset()
    """What they may do beyond their role."""

    @property
    def may_decide(self) -> bool:
        """Whether they may take items and decide."""
        return self.role >= Role.ANALYST

    @property
    def may_suppress(self) -> bool:
        """Whether they may suppress rules, which hides alerts from everybody."""
        return self.role >= Role.LEAD

    @property
    def may_author(self) -> bool:
        """Whether they may save drafts of rules, and ask for changes of them."""
        return "rule author" in self.duties

    @property
    def may_ask(self) -> bool:
        """Whether they may ask for what needs two keys, and withdraw it."""
        return self.may_decide or self.may_author

    @property
    def may_approve(self) -> bool:
        """Whether they may agree to what others ask for."""
        return "approver" in self.duties


class Access(ABC):
    """Authenticates requests, and checks the origin of forms."""

    def __init__(self, public_url: str | None = None, hosts: Collection[str] = ()) -> None:
        """Make the secret for the tokens of forms, which are valid until the process ends.

        Args:
            public_url: the address of the pages behind a proxy; by default where they are served.
            hosts: host names that a request may use; empty for any.
        """
        self._secret = secrets.token_bytes(32)
        self._public = public_url
        self._hosts = set(hosts)
        if hosts and public_url:
            self._hosts.add(str(urlsplit(public_url).hostname))

    @abstractmethod
    async def person(self, request: Request) -> Person | Response:
        """Return who sent a request, or a response to send instead of the page.

        Raises:
            RefusedError: the sender is unknown, or may not see the pages.
        """

    def is_proxy(self, peer: str) -> bool:
        """Return whether an address is that of a proxy, which many people share."""
        return False

    def is_own_host(self, request: Request) -> bool:
        """Return whether a request uses a host name of this desk: another name may be DNS rebinding."""
        return not self._hosts or (request.url.hostname or "") in self._hosts

    def form_token(self, person: Person) -> str:
        """Return the token that a person's forms contain."""
        return hmac.new(self._secret, person.session.encode(), hashlib.sha256).hexdigest()

    def require_own_form(self, request: Request, person: Person, token: str) -> None:
        """Require that a form was sent from a page of this desk (no cross-site request forgery).

        Raises:
            RefusedError: another site sent it, or the desk has been restarted since the page was loaded.
        """
        origin = request.headers.get("origin")
        site = request.headers.get("sec-fetch-site")
        is_hidden = origin == "null" and site == "same-origin"  # hidden by an extension, or a policy of a proxy
        is_foreign = origin is not None and not is_hidden and not self._is_own_origin(request, origin)
        if is_foreign or site not in (None, "same-origin", "none"):
            raise RefusedError(
                "another site sent this form, so nothing was done: behind a proxy, start the desk with --public-url"
            )
        if not hmac.compare_digest(token.encode(), self.form_token(person).encode()):
            raise RefusedError("this page is from before the desk was started again: load it again, nothing was done")

    def _is_own_origin(self, request: Request, origin: str) -> bool:
        """Return whether an origin is that of the pages; behind a proxy with TLS its scheme differs."""
        return origin in (self._public, f"http://{self._host(request)}", f"https://{self._host(request)}")

    def _host(self, request: Request) -> str | None:
        return request.headers.get("host")


class TokenAccess(Access):
    """Access for one person, by the token in the address that the command printed last, which works once.

    The browser that opens the address gets a cookie, which works until the process ends.
    """

    def __init__(
        self,
        name: str,
        role: Role,
        hosts: Collection[str],
        port: int,
        public_url: str | None = None,
        renewed: Callable[[str], None] = lambda token: None,
    ) -> None:
        """Make the token.

        Args:
            name: the person's name.
            role: the person's role.
            hosts: host names that a request may use; empty for any.
            port: the port, for the cookie's name: browsers share cookies between ports.
            public_url: the address of the pages if they are behind a proxy.
            renewed: called with the next token after one was used.
        """
        super().__init__(public_url, hosts)
        self.token = secrets.token_urlsafe(24)
        self._renewed = renewed
        self._brief = (secrets.token_urlsafe(24), 0.0)
        self._name = name
        self._role = role
        self._is_encrypted = bool(public_url and public_url.startswith("https:"))
        self._cookie = f"fraudlake_desk_{port}"
        self._session = secrets.token_urlsafe(24)

    async def person(self, request: Request) -> Person | Response:
        """Return the person if the cookie is valid; exchange a valid token for the cookie."""
        has_cookie = _is(request.cookies.get(self._cookie, ""), self._session)
        token = request.query_params.get("token")
        if not has_cookie and not (token and self._use(token)):
            raise RefusedError("open the address that 'fraudlake desk' printed last: its token lets you in, once")
        if token is not None:
            answer = RedirectResponse(request.url.remove_query_params("token").path, 303)
            answer.set_cookie(
                self._cookie, self._session, httponly=True, samesite="strict", path="/", secure=self._is_encrypted
            )
            return answer
        duties = SameRole(self._role).duties(self._name, ())
        return Person(self._name, self._role, session=self._session, duties=duties)

    def brief_token(self) -> str:
        """Return another token, valid once within :data:`BRIEF` seconds: all users can see a browser's arguments."""
        self._brief = secrets.token_urlsafe(24), time.monotonic() + BRIEF
        return self._brief[0]

    def _use(self, token: str) -> bool:
        """Consume a token, and return whether it was valid."""
        brief, until = self._brief
        if _is(token, brief) and time.monotonic() < until:
            self._brief = brief, 0.0
            return True
        if not _is(token, self.token):
            return False
        self.token = secrets.token_urlsafe(24)
        self._renewed(self.token)
        return True


def _is(text: str, secret: str) -> bool:
    """Compare with a secret in constant time."""
    return hmac.compare_digest(text.encode(), secret.encode())


class ProxyAccess(Access):
    """Access for the people whom a trusted proxy authenticates and names in a header."""

    def __init__(
        self,
        header: str,
        trusted: Collection[IPv4Network | IPv6Network],
        roles: Roles,
        hosts: Collection[str],
        public_url: str,
        groups_header: str | None = None,
        most: Role = Role.LEAD,
    ) -> None:
        """Trust the headers of some addresses.

        Args:
            header: the header with a person's name.
            trusted: the addresses of proxies that set the header, and remove one that a browser sends.
            roles: maps people to roles.
            hosts: host names that a request may use; empty for any.
            public_url: the address of the proxy for people.
            groups_header: the header with the names of a person's groups, separated by commas.
            most: the highest role that anybody gets.
        """
        super().__init__(public_url, hosts)
        self._header = header
        self._groups_header = groups_header
        self._trusted = trusted
        self._roles = roles
        self._most = most

    async def person(self, request: Request) -> Person | Response:
        """Return the person whom a trusted proxy names."""
        peer = request.client.host if request.client else ""
        if not self.is_proxy(peer):
            raise RefusedError(f"open {self._public}: {peer} is not a proxy that this desk trusts (trusted_proxies)")
        name = self._proxy_header(request, self._header)
        groups = ""
        if self._groups_header:
            groups = self._proxy_header(request, self._groups_header, is_required=False)
        names = {group.strip() for group in groups.split(",")}
        role = min(self._roles.role(name, names), self._most)
        duties = self._roles.duties(name, names) if self._most > Role.READER else frozenset()
        return Person(name, role, session=name, duties=duties)

    def _proxy_header(self, request: Request, header: str, is_required: bool = True) -> str:
        """Return the text of a header that the proxy sets."""
        values = request.headers.getlist(header)
        text = _utf8(values[0]).strip() if values else ""
        if len(values) > 1 or (is_required and not text):
            raise RefusedError(
                f"the proxy did not say who you are: it must set the header {header}, once, and remove what browsers "
                "send in it"
            )
        return text

    def is_proxy(self, peer: str) -> bool:
        """Return whether an address is that of a trusted proxy."""
        try:
            address = ip_address(peer)
        except ValueError:
            return False
        # A socket for both versions of IP writes 127.0.0.1 as ::ffff:127.0.0.1.
        address = getattr(address, "ipv4_mapped", None) or address
        return any(address in network for network in self._trusted)


def _utf8(header: str) -> str:
    """Return a header decoded as UTF-8; Starlette decodes its bytes as Latin-1."""
    try:
        return header.encode("latin-1").decode()
    except UnicodeError:
        return header


class PlatformAccess(Access):
    """Access for the users of a Databricks App, whose proxy sets the headers and removes those that a browser sends."""

    def __init__(self, roles: Roles, groups_of: Callable[[str], Collection[str]]) -> None:
        """Map users to roles by their groups in the workspace.

        Args:
            roles: maps people to roles.
            groups_of: returns the groups of the owner of an access token.
        """
        super().__init__()
        self._roles = roles
        self._groups_of = groups_of
        self._known: dict[str, tuple[float, Role, frozenset[Duty]]] = {}

    async def person(self, request: Request) -> Person | Response:
        """Return the person whom the platform names."""
        name = request.headers.get("x-forwarded-email") or request.headers.get("x-forwarded-preferred-username")
        token = request.headers.get("x-forwarded-access-token")
        if not name or not token:
            raise RefusedError(
                "the platform did not say who you are: open the app from the workspace, and check that it may act for "
                "its users (user authorization, with the scope sql)"
            )
        role, duties = await run_in_threadpool(self._rights, name, token)
        return Person(name, role, token, name, duties)

    def is_proxy(self, peer: str) -> bool:
        """Return true: only the platform's proxy connects to the app."""
        return True

    def _rights(self, name: str, token: str) -> tuple[Role, frozenset[Duty]]:
        asked_at, role, duties = self._known.get(name, (-_GROUPS_LIVE, Role.READER, frozenset()))
        if time.monotonic() - asked_at >= _GROUPS_LIVE:
            groups = self._groups_of(token)
            role = self._roles.role(name, groups)
            duties = self._roles.duties(name, groups)
            self._known[name] = time.monotonic(), role, duties
        return role, duties

    def _host(self, request: Request) -> str | None:
        return request.headers.get("x-forwarded-host") or request.headers.get("host")
