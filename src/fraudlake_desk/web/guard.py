"""Guard: checks every request before a page sees it, and adds security headers to every answer."""

from __future__ import annotations

import time
from collections import OrderedDict
from typing import TYPE_CHECKING

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import Response

from fraudlake_desk.web.access import Person
from fraudlake_desk.web.errors import PageError, RefusedError, TooManyError

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from fraudlake_desk.web.access import Access

HEADERS = {
    # No inline scripts or styles, nothing from other origins, and no embedding in frames.
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",  # without a referrer, browsers send "Origin: null" with plain forms
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}
PUBLIC = "/static/"
"""Static files of the pages, without data of the lake, which need no authentication."""
RATE = 20.0
BURST = 200.0
"""Sustained requests a second of a person, and the most at once."""
_PEOPLE = 1000


class Guard:
    """Authenticates and rate-limits requests, and adds :data:`HEADERS` to every answer."""

    def __init__(self, app: ASGIApp, access: Access, refuse: Callable[[Request, PageError], Response]) -> None:
        """Guard an application; ``refuse`` renders an error as a page."""
        self._app = app
        self._access = access
        self._refuse = refuse
        self._allowances: OrderedDict[str, tuple[float, float]] = OrderedDict()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(HEADERS)
                headers.setdefault("cache-control", "no-store")
            await send(message)

        request = Request(scope, receive)
        try:
            answer = await self._checked(request)
        except PageError as error:
            answer = self._refuse(request, error)
        await (answer or self._app)(scope, receive, with_headers)

    async def _checked(self, request: Request) -> Response | None:
        """Authenticate a request, and store the person in its state; return a response in place of a page, if any."""
        if not self._access.is_own_host(request):
            raise RefusedError(
                "this is not the address that 'fraudlake desk' printed: behind a proxy, start it with --public-url"
            )
        if request.url.path.startswith(PUBLIC):
            return None
        who = await self._access.person(request)
        if isinstance(who, Response):
            return who
        request.state.person = who
        self._count(who)
        return None

    def _count(self, person: Person) -> None:
        """Deduct a request from a person's allowance, which refills with time (a token bucket)."""
        now = time.monotonic()
        left, before = self._allowances.pop(person.name, (BURST, now))
        left = min(BURST, left + (now - before) * RATE)
        self._allowances[person.name] = (max(left - 1, 0), now)
        if len(self._allowances) > _PEOPLE:
            self._allowances.popitem(last=False)
        if left < 1:
            raise TooManyError(f"more than {RATE:.0f} requests a second: wait some seconds, and try again")
