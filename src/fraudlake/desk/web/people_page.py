"""The people's page: what each person did in some days, for themselves and for a lead."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING

from starlette.routing import Route

from fraudlake import durations
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
        days = items.days(store)
        queued = {day: items.listed(store, day, now) for day in days if window.first <= day <= window.last}
        latest = items.latest(days)
        newest = items.listed(store, latest, now) if latest else []
        present = [one for one in newest if not one.is_repeated]
        work = people.of_events(review.of_lake(store), window, now)
        month = last.replace(day=1)
        return site.page(
            request,
            "people.html",
            page="People",
            window=window,
            months=[_month(month), _month(month - timedelta(days=1))],
            people=work,
            total=people.total(work, [one for of_day in queued.values() for one in of_day]),
            limit=durations.text(store.settings.review_limit),
            day=latest,
            queued=len(present),
            open=sum(not one.is_decided for one in present),
            late=sum(one.is_late for one in present),
            aside=sum(bool(one.state.waits_until or one.state.assignee or one.state.is_escalated) for one in present),
        )

    return [Route("/people", page)]


def _month(day: date) -> Window:
    """Return the month that has a day."""
    first = day.replace(day=1)
    return Window(first, (first + timedelta(days=31)).replace(day=1) - timedelta(days=1))
