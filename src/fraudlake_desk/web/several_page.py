"""Several at once: applies an action of the queue's page to all chosen items, and shows the outcome of each."""

from __future__ import annotations

from datetime import UTC, datetime, time
from functools import partial
from typing import TYPE_CHECKING, Any

from starlette.responses import JSONResponse
from starlette.routing import Route

from fraudlake.review import cases, items
from fraudlake.review.event import Event, Verdict
from fraudlake_desk.review import actions, several
from fraudlake_desk.web import forms
from fraudlake_desk.web.case_page import ASIDE
from fraudlake_desk.web.errors import MissingError, PageError
from fraudlake_desk.web.names import segment
from fraudlake_desk.web.queue_filter import QueueFilter
from fraudlake_desk.web.queue_page import day_of
from fraudlake_desk.web.site import moment, wants_json

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import date

    from starlette.requests import Request
    from starlette.responses import Response

    from fraudlake.errors import FraudlakeError
    from fraudlake.lake.store import Store
    from fraudlake.review.item import Item
    from fraudlake.review.item_state import State
    from fraudlake.review.items import Queued
    from fraudlake_desk.review.several import Make, Outcomes
    from fraudlake_desk.web.forms import Fields
    from fraudlake_desk.web.site import Site

_SAID = ("act", "reason", "note", "until", "assignee")
"""The fields that define the action."""
_DONE = {"released": "given back", "noted": "noted", "assigned": "assigned", "escalated": "for a lead"}
_NO_ITEM = "it is not in this queue any more: it was forgotten, replaced or merged"


def routes(site: Site) -> list[Route]:
    """Return the routes."""

    async def answer(request: Request) -> Response:
        fields = await forms.read(request, site.access)
        rows = await forms.carried_out(lambda: sent(request, fields))
        day = day_of(fields.get("day"))
        chosen = QueueFilter.read(fields)
        done = sum(row["is_done"] for row in rows)
        values = {"rows": rows, "done": done, "address": chosen.address(day)}
        if wants_json(request):
            return JSONResponse({"part": bytes(site.page(request, "outcomes.html", **values).body).decode()})
        return site.page(request, "several.html", page="Queue", **values)

    def sent(request: Request, fields: Fields) -> list[dict[str, Any]]:
        person = request.state.person
        day = day_of(fields.get("day"))
        names = fields.getlist("item")
        store = site.store_of(person)
        form_id = forms.event_id(fields)
        if day is None:
            raise PageError("name the day of the queue")
        if not names:
            raise PageError("no item is chosen, so nothing was written: choose some in the queue")
        several.require_few(dict.fromkeys(names))
        with store.in_turn():
            chosen = _chosen(store, day, names)
            make = _make(store, person.name, chosen.values(), fields)
            said = [fields.get(name) or None for name in _SAID]
            outcomes = several.carry_out(store, chosen, form_id, said, make) if chosen else {}
        return [_row(name, day, chosen, outcomes) for name in dict.fromkeys(names)]

    return [Route("/several", answer, methods=["POST"])]


def _chosen(store: Store, day: date, names: Iterable[str]) -> dict[str, Item]:
    """Return the items of a day's queue with some names, by name; names that the queue lacks are left out."""
    wanted = {*names}
    queued = [one for one in items.listed(store, day) if one.row["item_id"] in wanted and _is_own(one)]
    chosen = items.whole(store, queued)
    return {one.row["item_id"]: item for one, item in zip(queued, chosen, strict=True)}


def _is_own(one: Queued) -> bool:
    """Return whether the item of a row still exists, and is not a part of another case."""
    return not one.is_part and (one.item.case_id is not None or one.row["kind"] == cases.DRAWN)


def _make(store: Store, analyst: str, chosen: Iterable[Item], fields: Fields) -> Make:
    """Return the function that makes the event of the form's action."""
    act = fields.get("act", "")
    until = day_of(fields.get("until"))
    reason, note, assignee = (fields.get(name) for name in ("reason", "note", "assignee"))
    lock = store.settings.review_lock

    def take(item: Item, before: State, id_: str) -> Event:
        return actions.take(item, before, analyst, lock, id_)

    def release(item: Item, before: State, id_: str) -> Event:
        return actions.release(item, before, analyst, id_)

    def set_aside(item: Item, before: State, id_: str) -> Event:
        time_ = datetime.combine(until, time(), UTC) if until else None
        return actions.set_aside(item, before, analyst, ASIDE[act], id_, reason, note, time_, assignee)

    def decide(verdict: Verdict, item: Item, before: State, id_: str) -> Event:
        return actions.decide(item, before, analyst, verdict, id_, None, reason, note)

    if act == "fraud":
        return several.all_fraud(store, chosen, analyst, reason, note)
    made: dict[str, Make] = {
        "take": take,
        "release": release,
        "genuine": partial(decide, "genuine"),
        "unsure": partial(decide, "unsure"),
        **dict.fromkeys(ASIDE, set_aside),
    }
    if act not in made:
        raise PageError("this form does not say what to do: load the page again")
    return made[act]


def _row(name: str, day: date, chosen: dict[str, Item], outcomes: Outcomes) -> dict[str, Any]:
    """Return the outcome of an item as a row for the page."""
    outcome: Event | FraudlakeError = outcomes.get(name, MissingError(_NO_ITEM))
    is_done = isinstance(outcome, Event)
    item = chosen.get(name)
    return {
        "key": item.entity_key if item else name,
        "address": f"/items/{segment(name)}?day={day}",
        "is_done": is_done,
        "text": _done(outcome) if isinstance(outcome, Event) else str(outcome),
    }


def _done(event: Event) -> str:
    """Describe an event for people."""
    if event.is_verdict:
        paid = f", {len(event.fraud_ids)} payments" if len(event.fraud_ids) > 1 else ""
        return f"decided: {event.verdict}{paid}"
    if event.kind == "taken":
        return f"yours until {moment(event.expires_at)} UTC"
    if event.kind == "waiting":
        return f"waits until {moment(event.expires_at)} UTC"
    return f"for {event.assignee}" if event.kind == "assigned" else _DONE[event.kind]
