"""The health page: rows of each layer, streams that lag, drift, and quarantine by reason."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

from starlette.routing import Route

from fraudlake_desk.lookup import health
from fraudlake_desk.web.errors import MissingError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request
    from starlette.responses import Response

    from fraudlake_desk.web.site import Site

_LIVE = 15.0
"""Seconds for which the state of the streams is cached."""


def routes(site: Site) -> list[Route]:
    """Return the routes."""
    streams_ = _Streams(site)

    def page(request: Request) -> Response:
        store = site.store_of(request.state.person)
        return site.page(
            request,
            "health.html",
            page="Health",
            lake=store.name,
            health=health.health(store),
            max_drift=store.settings.max_drift,
            has_streams=site.activity is not None,
        )

    def streams(request: Request) -> Response:
        return site.page(request, "streams.html", **streams_.look())

    return [Route("/health", page), Route("/health/streams", streams)]


class _Streams:
    """Caches the state of a local lake's streams: reading checkpoints takes seconds, and loads pyspark once."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._lock = threading.Lock()
        self._latest: tuple[float, Mapping[str, Any]] = (-_LIVE, {})

    def look(self) -> Mapping[str, Any]:
        """Return the result of :attr:`Site.activity`, from the cache if it is recent."""
        if self._site.activity is None:
            raise MissingError("the jobs of the workspace show what its streams do")
        with self._lock:
            if time.monotonic() - self._latest[0] >= _LIVE:
                self._latest = time.monotonic(), self._site.activity()
            return self._latest[1]
