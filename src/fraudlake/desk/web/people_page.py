"""The people's page: what each person did in some days, for themselves and for a lead."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from starlette.routing import Route

from fraudlake.desk import items, people, review
from fraudlake.desk.web.errors import PageError
from fraudlake.desk.web.queue_page import day_of
from fraudlake.desk.window import Window

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from fraudlake.desk.web.site import Site

_DAYS = 28
"""Days that are shown unless others are asked for."""


def routes(site: Site) -> list[Route]:
    """Return the routes."""

    def page(request: Request) -> Response:
        store, now = site.store_of(request.state.person), datetime.now(UTC)
        first, last = (day_of(request.query_params.get(name)) for name in ("from", "to"))
        last = last or now.date()
        window = Window(first or last - timedelta(days=_DAYS - 1), last)
        if window.first > window.last:
            raise PageError(f"{window.first} is after {window.last}: give the days in their order")
        day = items.latest(items.days(store))
        queued = [one for one in items.listed(store, day, now) if not one.is_repeated] if day else []
        return site.page(
            request,
            "people.html",
            page="People",
            window=window,
            people=people.of_events(review.of_lake(store), window, now),
            day=day,
            queued=len(queued),
            open=sum(not one.is_decided for one in queued),
            aside=sum(bool(one.state.waits_until or one.state.assignee or one.state.is_escalated) for one in queued),
        )

    return [Route("/people", page)]
