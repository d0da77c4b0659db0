"""The queue's page: the items of a day with their states, and the next one."""

from __future__ import annotations

from datetime import date
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from starlette.routing import Route

from fraudlake import tables
from fraudlake.desk import cases, items, review
from fraudlake.desk.web import forms
from fraudlake.desk.web.errors import PageError
from fraudlake.desk.web.names import segment
from fraudlake.desk.web.role import Role
from fraudlake.desk.web.site import done

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request
    from starlette.responses import Response

    from fraudlake.desk.items import Queued
    from fraudlake.desk.store import Store
    from fraudlake.desk.web.access import Person
    from fraudlake.desk.web.forms import Fields
    from fraudlake.desk.web.site import Site


def routes(site: Site) -> list[Route]:
    """Return the routes."""

    def page(request: Request) -> Response:
        store = site.store_of(request.state.person)
        days = items.days(store)
        day = day_of(request.query_params.get("day")) or next(iter(days), None)
        queued = items.listed(store, day) if day else []
        rows = [
            {**one.row, "item": one.item, "state": one.state, "is_decided": one.is_decided, "address": address(one)}
            for one in queued
        ]
        others = sorted(other for other in days if other != day)
        return site.page(
            request,
            "queue.html",
            page="Queue",
            day=day,
            rows=rows,
            earlier=max((other for other in others if day and other < day), default=None),
            later=min((other for other in others if day and other > day), default=None),
            decided=sum(one.is_decided for one in queued),
            held=sum(one.state.holder is not None for one in queued),
            built_at=queued[0].row["built_at"] if queued else None,
            missing="" if queued else missing(store, day),
            event_id=review.new_id(),
        )

    async def following(request: Request) -> Response:
        fields = await forms.read(request, site.access)
        return done(request, await forms.carried_out(lambda: sent(request, fields)))

    def sent(request: Request, fields: Fields) -> str:
        person = request.state.person
        store = site.store_of(person)
        with store.in_turn():
            return _take_next(store, person, fields)

    return [Route("/", page), Route("/next", following, methods=["POST"])]


def day_of(text: str | None) -> date | None:
    """Return a day from a text; None if it is empty.

    Raises:
        PageError: it is no day.
    """
    try:
        return date.fromisoformat(text) if text else None
    except ValueError:
        raise PageError(f"'{text}' is not a day: give one such as 2026-03-07") from None


def address(queued: Queued) -> str:
    """Return the address of the page of an item of a queue."""
    return f"/items/{segment(queued.row['item_id'])}?{urlencode({'day': queued.row['day']})}"


def missing(store: Store, day: date | None) -> str:
    """Return what to run, so that there is a queue."""
    if not store.has_rows(tables.SILVER_TRANSACTIONS):
        return "The lake has no transactions yet: run 'fraudlake run --landing FOLDER'."
    if day is not None:
        return f"There is no queue of {day}: run 'fraudlake queue build --day {day}'."
    if not store.has_rows(tables.GOLD_CASES):
        return (
            "There are no cases yet: run 'fraudlake detect' and 'fraudlake aggregate', which group alerts to cases, "
            "and then 'fraudlake queue build'."
        )
    return "No queue is built yet: run 'fraudlake queue build'."


def _take_next(store: Store, person: Person, fields: Mapping[str, str]) -> str:
    """Take the next item that is free, after one of them or from the top; return the address of its page.

    Raises:
        PageError: every item is decided, or held by others.
    """
    day = day_of(fields.get("day"))
    if day is None:
        raise PageError("name the day of the queue")
    event_id, lock = fields.get("event_id") or review.new_id(), store.settings.review_lock
    queued = items.listed(store, day)
    after = fields.get("after")
    at = next((number for number, one in enumerate(queued) if after in one.item.names), -1)
    for one in [*queued[at + 1 :], *queued[: max(at, 0)]]:
        if one.is_decided or not one.state.is_offered(person.name, person.role >= Role.LEAD):
            continue
        if one.state.holder == person.name:
            return address(one)
        try:
            event = review.record(
                store,
                one.item if one.item.case_id else cases.drawn(store, one.row),
                event_id,
                partial(review.take, one.item, analyst=person.name, lock=lock, event_id=event_id),
            )
        except review.TakenError:  # somebody was faster
            continue
        # A form that is sent again names the item that it took.
        taken = next((other for other in queued if event.item_id in other.item.names), one)
        return address(taken)
    held = sum(one.state.holder not in (None, person.name) for one in queued)
    decided = sum(one.is_decided for one in queued)
    raise PageError(
        f"nothing is left to take: {decided} of {len(queued)} are decided, others hold {held}, "
        "and the rest waits or is for somebody else"
    )
