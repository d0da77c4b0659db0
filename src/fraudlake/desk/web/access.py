"""Access: a request becomes the person who sent it, or a refusal.

On a machine of one's own, the command prints an address with a token, which the browser exchanges for a cookie. In a
workspace, Databricks Apps has checked who it is, and says so in headers that no browser can set.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from starlette.concurrency import run_in_threadpool
from starlette.responses import RedirectResponse, Response

from fraudlake.desk.web.errors import RefusedError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from starlette.requests import Request

_GROUPS_LIVE = 60.0
"""Seconds for which a person's groups count before they are asked for again."""


@dataclass(frozen=True)
class Person:
    """Who looks at the pages."""

    name: str
    may_decide: bool
    """Whether they are an analyst, who takes and decides; a reader only reads."""
    credentials: str | None = field(default=None, repr=False)
    """Their access token in a workspace: what they may read and write there is theirs."""
    session: str = field(default="", repr=False)
    """What their forms are bound to."""


class Access(ABC):
    """Finds out who sent a request."""

    def __init__(self) -> None:
        """Make a secret for the tokens of forms, which do not outlive the process."""
        self._secret = secrets.token_bytes(32)

    @abstractmethod
    async def person(self, request: Request) -> Person | Response:
        """Return who sent a request, or an answer that comes first.

        Raises:
            RefusedError: nobody who may look at the pages.
        """

    @abstractmethod
    def is_own_host(self, request: Request) -> bool:
        """Return whether a request names a host that this is; a page of another name may be a rebound one."""

    def form_token(self, person: Person) -> str:
        """Return the token that a person's forms contain."""
        return hmac.new(self._secret, person.session.encode(), hashlib.sha256).hexdigest()

    def require_own_form(self, request: Request, person: Person, token: str) -> None:
        """Require that a form is one of a page of this desk.

        Raises:
            RefusedError: another site sent it, or the desk has been started again since.
        """
        origin, site = request.headers.get("origin"), request.headers.get("sec-fetch-site")
        is_foreign = origin is not None and not self._is_own_origin(request, origin)
        if is_foreign or site not in (None, "same-origin", "none"):
            raise RefusedError("another site sent this form, so nothing was done")
        if not hmac.compare_digest(token.encode(), self.form_token(person).encode()):
            raise RefusedError("this page is from before the desk was started again: load it again, nothing was done")

    @abstractmethod
    def _is_own_origin(self, request: Request, origin: str) -> bool:
        """Return whether an origin is that of the pages."""


class TokenAccess(Access):
    """One person, who has the address that the command printed."""

    def __init__(self, name: str, may_decide: bool, hosts: Collection[str], port: int) -> None:
        """Make the token.

        Args:
            name: the person's name.
            may_decide: whether they are an analyst.
            hosts: names of this machine that a browser may use; empty for any.
            port: the port, since cookies are not separate by port.
        """
        super().__init__()
        self.token = secrets.token_urlsafe(24)
        self._name, self._may_decide, self._hosts = name, may_decide, hosts
        self._cookie, self._session = f"fraudlake_desk_{port}", secrets.token_urlsafe(24)

    async def person(self, request: Request) -> Person | Response:
        """Return the person if the cookie is right; exchange a token for the cookie."""
        given = request.query_params.get("token")
        if given is not None:
            if not hmac.compare_digest(given.encode(), self.token.encode()):
                raise RefusedError(_ASK)
            answer = RedirectResponse(request.url.remove_query_params("token").path, 303)
            answer.set_cookie(self._cookie, self._session, httponly=True, samesite="strict", path="/")
            return answer
        if not hmac.compare_digest(request.cookies.get(self._cookie, "").encode(), self._session.encode()):
            raise RefusedError(_ASK)
        return Person(self._name, self._may_decide, session=self._session)

    def is_own_host(self, request: Request) -> bool:
        """Return whether the name is one of this machine's."""
        return not self._hosts or (request.url.hostname or "") in self._hosts

    def _is_own_origin(self, request: Request, origin: str) -> bool:
        return origin == f"{request.url.scheme}://{request.headers.get('host')}"


_ASK = "open the address that 'fraudlake desk' printed when it started: its token lets you in"


class PlatformAccess(Access):
    """The people whom Databricks Apps lets through: it sets the headers, and removes those that a browser sends."""

    def __init__(self, analysts: Collection[str], groups_of: Callable[[str], Collection[str]]) -> None:
        """Decide by groups who is an analyst.

        Args:
            analysts: the groups whose members decide; others read.
            groups_of: asks for the groups of whose access token it is.
        """
        super().__init__()
        self._analysts, self._groups_of = set(analysts), groups_of
        self._known: dict[str, tuple[float, bool]] = {}

    async def person(self, request: Request) -> Person | Response:
        """Return the person whom the platform names."""
        name = request.headers.get("x-forwarded-email") or request.headers.get("x-forwarded-preferred-username")
        token = request.headers.get("x-forwarded-access-token")
        if not name or not token:
            raise RefusedError(
                "the platform did not say who you are: open the app from the workspace, and check that it may act for "
                "its users (user authorization, with the scope sql)"
            )
        return Person(name, await run_in_threadpool(self._may_decide, name, token), token, name)

    def _may_decide(self, name: str, token: str) -> bool:
        asked_at, may_decide = self._known.get(name, (-_GROUPS_LIVE, False))
        if time.monotonic() - asked_at >= _GROUPS_LIVE:
            may_decide = not self._analysts.isdisjoint(self._groups_of(token))
            self._known[name] = time.monotonic(), may_decide
        return may_decide

    def is_own_host(self, request: Request) -> bool:
        """Return true: the platform routes by host."""
        return True

    def _is_own_origin(self, request: Request, origin: str) -> bool:
        host = request.headers.get("x-forwarded-host") or request.headers.get("host")
        return origin.partition("://")[2] == host
