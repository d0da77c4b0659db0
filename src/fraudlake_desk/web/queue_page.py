"""The queue's page: the items of a day with their states, and the form that takes the next one."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, NoReturn

from starlette.routing import Route

from fraudlake import tables
from fraudlake.errors import FraudlakeError
from fraudlake.review import event_log, items
from fraudlake_desk.lookup import money
from fraudlake_desk.review import actions, several, verdicts
from fraudlake_desk.web import forms
from fraudlake_desk.web.claims import Claims
from fraudlake_desk.web.errors import PageError
from fraudlake_desk.web.names import segment
from fraudlake_desk.web.queue_filter import SECOND_LOOK, STATES, QueueFilter, people
from fraudlake_desk.web.role import Role
from fraudlake_desk.web.site import done

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request
    from starlette.responses import Response

    from fraudlake.lake.store import Store
    from fraudlake.review.items import Queued
    from fraudlake_desk.web.access import Person
    from fraudlake_desk.web.forms import Fields
    from fraudlake_desk.web.site import Site


_SHOWN = 1_000
"""Rows of the page: 36,000 would be 22 MB."""
_COLUMNS = {
    "rank": "#",
    "state": "State",
    "reasons": "What raised it",
    "key": "Account or entity",
    "amount": "At risk",
    "probability": "Probability",
}
"""The headings of the queue, by the names of their orders."""


def routes(site: Site) -> list[Route]:
    """Return the routes."""

    def page(request: Request) -> Response:
        store = site.store_of(request.state.person)
        person = request.state.person
        days = items.days(store)
        chosen = QueueFilter.read(request.query_params)
        day = day_of(request.query_params.get("day")) or items.latest(days)
        queued = items.listed(store, day) if day else []
        query = chosen.query(day)
        having = [one for one in chosen.ordered(queued) if chosen.has(one, person.name)]
        currencies = money.read_currencies(store, having[:_SHOWN])
        # Jinja looks for an attribute first: in a mapping, it fails to find one for each value of a row.
        rows = [
            SimpleNamespace(
                **one.row,
                currencies=currencies.get(one.item.item_id, ()),
                item=one.item,
                state=one.state,
                is_decided=one.is_decided,
                is_late=one.is_late,
                part_of=one.item.item_id if one.is_part else None,
                address=address(one, query),
            )
            for one in having[:_SHOWN]
        ]
        others = sorted(other for other in days if other != day)
        return site.page(
            request,
            "queue.html",
            page="Queue",
            day=day,
            rows=rows,
            having=len(having),
            chosen=chosen,
            choices=_choices(queued, chosen),
            columns=_COLUMNS,
            items=len(queued),
            earlier=max((other for other in others if day and other < day), default=None),
            later=min((other for other in others if day and other > day), default=None),
            decided=sum(one.is_decided for one in queued),
            held=sum(one.state.holder is not None for one in queued if not one.is_repeated),
            built_at=queued[0].row["built_at"] if queued else None,
            missing="" if queued else missing(store, day),
            event_id=event_log.new_id(),
            several_id=event_log.new_id(),
            most=several.MOST,
            longest=event_log.LONGEST,
            reasons=store.settings.review_reasons,
            tomorrow=datetime.now(UTC).date() + timedelta(days=1),
        )

    async def following(request: Request) -> Response:
        fields = await forms.read(request, site.access)
        return done(request, await forms.carried_out(lambda: sent(request, fields)))

    def sent(request: Request, fields: Fields) -> str:
        person = request.state.person
        store = site.store_of(person)
        return _take_next(store, person, fields, being_taken)

    being_taken = Claims()
    return [Route("/", page), Route("/next", following, methods=["POST"])]


def day_of(text: str | None) -> date | None:
    """Return a day from a text; None if it is empty.

    Raises:
        PageError: the text is not a day.
    """
    try:
        return date.fromisoformat(text) if text else None
    except ValueError:
        raise PageError(f"'{text}' is not a day: give one such as 2026-03-07") from None


def address(queued: Queued, query: str) -> str:
    """Return the address of an item's page, with the :meth:`QueueFilter.query` of its queue."""
    return f"/items/{segment(queued.row['item_id'])}{query}"


def missing(store: Store, day: date | None) -> str:
    """Return a sentence on what to run to get a queue."""
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


def _choices(queued: list[Queued], chosen: QueueFilter) -> dict[str, list[str]]:
    """Return the choices of each filter: the values in the queue, and the chosen one."""
    return {
        "state": [*STATES],
        "rule": sorted({rule for one in queued for rule in one.rules} | {chosen.rule} - {""}),
        "entity": sorted({one.row["entity"] for one in queued} | {chosen.entity} - {""}),
        "person": sorted({name for one in queued for name in people(one)} | {chosen.person} - {""}),
    }


def _take_next(store: Store, person: Person, fields: Mapping[str, str], being_taken: Claims) -> str:
    """Take the next free item of a filtered queue, and give back the one that the analyst leaves; return its address.

    The search begins after the item that the analyst leaves, and goes on from the top.

    Raises:
        PageError: no item is free for the analyst.
    """
    day = day_of(fields.get("day"))
    if day is None:
        raise PageError("name the day of the queue")
    event_id = fields.get("event_id") or event_log.new_id()
    chosen = QueueFilter.read(fields)
    after = fields.get("after")
    ordered = chosen.ordered(items.listed(store, day))
    # Not only in the filtered queue: the item may have left it by its verdict.
    at = next((number for number, one in enumerate(ordered) if after in one.item.names), None)
    if at is None:
        others = sorted(ordered, key=lambda one: one.order_for(person.name))
    else:
        others = [*ordered[at + 1 :], *ordered[:at]]
    written = (one for one in ordered if one.state.last and one.state.last.event_id == event_id)
    one = next(written, None) or _take_first(store, person, event_id, chosen, others, being_taken)
    if one is None:
        _refuse(ordered, person.name, chosen)
    if at is not None and ordered[at].state.holder == person.name:
        _give_back(store, ordered[at], person.name, event_id)
    return address(one, chosen.query(day))


def _take_first(
    store: Store, person: Person, event_id: str, chosen: QueueFilter, others: list[Queued], being_taken: Claims
) -> Queued | None:
    """Take the first item that is offered to the person, and return it; one that they already hold is only returned."""
    analyst = person.name
    is_lead = person.role >= Role.LEAD
    is_again = chosen.state == SECOND_LOOK
    for one in others:
        if one.is_repeated:
            continue
        is_open = analyst not in one.state.agreeing if is_again else not one.is_decided
        if not is_open or not one.state.is_offered(analyst, is_lead) or not chosen.has(one, analyst):
            continue
        if one.state.holder == analyst:
            return one
        (item,), lock = items.whole(store, [one]), store.settings.review_lock
        make = partial(actions.take, item, analyst=analyst, lock=lock, event_id=event_id, is_again=is_again)
        with being_taken.claim(item.item_id) as is_own:
            if not is_own:
                continue
            try:
                event = verdicts.record_one(store, item, event_id, make)
            except actions.TakenError:  # somebody was faster
                continue
        # If the form is sent again, the event is the earlier one, perhaps of another item.
        return next((other for other in others if event.item_id in other.item.names), one)
    return None


def _give_back(store: Store, one: Queued, analyst: str, event_id: str) -> None:
    """Give back the item that an analyst leaves; a repeated form does so only once."""
    (item,), id_ = items.whole(store, [one]), hashlib.sha256(f"{event_id} released".encode()).hexdigest()[:32]
    # The lock may have expired in the meantime, and somebody else may hold the item.
    with suppress(FraudlakeError):
        verdicts.record_one(store, item, id_, partial(actions.release, item, analyst=analyst, event_id=id_))


def _refuse(queued: list[Queued], analyst: str, chosen: QueueFilter) -> NoReturn:
    of_any_state = [one for one in queued if replace(chosen, state="").has(one, analyst)]
    theirs = sum(one.state.holder not in (None, analyst) for one in of_any_state)
    decided = sum(one.is_decided for one in of_any_state)
    conditions = f" with {chosen.text}" if chosen.is_active else ""
    total = len(of_any_state)
    raise PageError(
        f"nothing is left to take{conditions}: {decided} of {total} are decided, others hold {theirs}, and the rest "
        "waits or is for somebody else"
    )
