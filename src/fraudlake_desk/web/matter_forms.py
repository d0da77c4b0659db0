"""Matter forms: the forms that open a case by hand, merge two cases and separate them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from starlette.routing import Route

from fraudlake.entity import ACCOUNT
from fraudlake.review import event_log, item_state, opened
from fraudlake.tables import GOLD_CASES
from fraudlake.text.sql_text import one_of, value
from fraudlake_desk.documents.letters import shown
from fraudlake_desk.lookup.money import amount
from fraudlake_desk.review import matters
from fraudlake_desk.web import forms
from fraudlake_desk.web.errors import PageError
from fraudlake_desk.web.names import segment
from fraudlake_desk.web.queue_filter import QueueFilter
from fraudlake_desk.web.site import done, moment

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from fraudlake.lake.store import Store
    from fraudlake.review.event import Event
    from fraudlake.review.item import Item
    from fraudlake.review.merges import Merges
    from fraudlake_desk.lookup.history import History
    from fraudlake_desk.web.forms import Fields
    from fraudlake_desk.web.site import Site

_MOST = 20
"""Most cases that a form proposes, and most payments and accounts by which they are looked up."""


def routes(site: Site) -> list[Route]:
    """Return the routes."""

    def form(carry_out: Callable[[Store, str, str, Fields, str], Event]) -> Callable[[Request], Any]:
        async def answer(request: Request) -> Response:
            fields = await forms.read(request, site.access)
            return done(request, await forms.carried_out(lambda: sent(request, fields)))

        def sent(request: Request, fields: Fields) -> str:
            person = request.state.person
            name = request.path_params.get("name", "")
            store = site.store_of(person)
            id_ = forms.event_id(fields)
            with store.in_turn():
                event = carry_out(store, person.name, name, fields, id_)
            query = {"done": event.event_id, "day": fields.get("day", "")} | QueueFilter.read(fields).fields
            return f"/items/{segment(event.item_id)}?{urlencode(query)}"

        return answer

    return [
        Route("/open", form(_open), methods=["POST"]),
        Route("/items/{name:text}/merge", form(_merge), methods=["POST"]),
        Route("/items/{name:text}/separate", form(_separate), methods=["POST"]),
    ]


def _open(store: Store, analyst: str, _: str, fields: Fields, id_: str) -> Event:
    payments = fields.getlist("payment")
    if not payments:
        raise PageError("mark the payments that the case is about: nothing was written")
    return matters.open_case(store, fields.get("account", ""), payments, analyst, fields.get("reason"), id_)


def _merge(store: Store, analyst: str, name: str, fields: Fields, id_: str) -> Event:
    into = fields.get("other", "").strip() or fields.get("into", "")
    if not into:
        raise PageError("choose the other case, or give its id: nothing was written")
    return matters.merge(store, name, into, analyst, fields.get("reason"), id_)


def _separate(store: Store, analyst: str, name: str, fields: Fields, id_: str) -> Event:
    return matters.separate(store, name, analyst, fields.get("reason"), id_)


def parts(item: Item, merged: Merges) -> list[dict[str, Any]]:
    """Return the cases that were merged into an item: ``id, text, event, event_id`` (for the form)."""
    return [
        {
            "id": part.item_id,
            "text": _text(merged.rows[part.item_id]),
            "event": merged.by[part.item_id],
            "event_id": event_log.new_id(),
        }
        for part in item.parts[1:]
    ]


def choices(store: Store, item: Item, past: History, merged: Merges) -> list[tuple[str, str]]:
    """Return open cases that might be merged with an item, the latest first: their ids, and a text for each.

    They share an account or a payment with the item.
    """
    accounts = {row["account_id"] for row in past.transactions if row["is_of_case"]} | {item.account_id}
    few = sorted(accounts)[:_MOST]
    has = " OR ".join(f"array_contains(transaction_ids, {value(id_)})" for id_ in item.transaction_ids[:_MOST])
    where = f"WHERE (entity = {value(ACCOUNT)} AND {one_of('account_id', few)}) OR {has or 'false'}"
    latest = f"SELECT * FROM {GOLD_CASES.name} {where} ORDER BY last_alert_at DESC, case_id LIMIT {_MOST}"
    rows = {}
    for row in [
        *opened.rows(store, lambda event: event.account_id in few),
        *store.query(latest, GOLD_CASES).to_pylist(),
    ]:
        whole = merged.rows.get(merged.whole(row["case_id"]), row)
        rows[whole["case_id"]] = whole
    others = [merged.item(row) for id_, row in rows.items() if id_ != item.item_id]
    names = {name: other.item_id for other in others for name in other.names}
    now = datetime.now(UTC)
    states = item_state.states(event_log.read_events_of_items(store, names), now, names) if names else {}
    is_open = (other for other in others if not states.get(other.item_id, item_state.state([], now)).covers(other))
    return [(other.item_id, _text(rows[other.item_id])) for other in is_open]


def _text(case: dict[str, Any]) -> str:
    what = f"{case['entity']} {shown(case['entity_key'])}, {moment(case['opened_at'])} UTC"
    return f"{what}, {amount(case['amount_at_risk'])} at risk"
