"""The people's page: the work of each person on some days, and the open items of the queues."""

from __future__ import annotations

from calendar import monthrange
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING

from starlette.routing import Route

from fraudlake.review import event_log, items
from fraudlake.review.window import Window
from fraudlake.times import durations
from fraudlake_desk.queue import people
from fraudlake_desk.web.errors import PageError
from fraudlake_desk.web.queue_page import day_of

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from fraudlake_desk.web.site import Site

_DAYS = 28
"""Days that are shown by default."""


def routes(site: Site) -> list[Route]:
    """Return the routes."""

    def page(request: Request) -> Response:
        store = site.store_of(request.state.person)
        now = datetime.now(UTC)
        first, last = (day_of(request.query_params.get(name)) for name in ("from", "to"))
        last = last or now.date()
        window = Window(first or _before(last, _DAYS - 1), last)
        if window.first > window.last:
            raise PageError(f"{window.first} is after {window.last}: give the days in their order")
        days = items.days(store)
        latest = items.latest(days)
        in_window = [day for day in days if window.first <= day <= window.last]
        queued = {day: items.listed(store, day, now) for day in days if day in in_window or day == latest}
        newest = queued[latest] if latest else []
        states = [one.state for one in newest if not one.is_repeated]
        work = people.count_work(event_log.read_events(store), window, now)
        return site.page(
            request,
            "people.html",
            page="People",
            window=window,
            months=[_month(last), _month(_before(last.replace(day=1), 1))],
            people=work,
            total=people.total(work, [one for day in in_window for one in queued[day]]),
            limit=durations.text(store.settings.review_limit),
            day=latest,
            newest=people.total([], newest),
            aside=sum(bool(state.waits_until or state.assignee or state.is_escalated) for state in states),
        )

    return [Route("/people", page)]


def _before(day: date, days: int) -> date:
    """Return the day that is some days earlier; the first day of the calendar if there is none."""
    return date.fromordinal(max(day.toordinal() - days, 1))


def _month(day: date) -> Window:
    """Return the days of the month of a day."""
    return Window(day.replace(day=1), day.replace(day=monthrange(day.year, day.month)[1]))
