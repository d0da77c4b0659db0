"""A list's page: its latest entries, and the form that ends an entry of any list."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.routing import Route

from fraudlake.review import event_log
from fraudlake_desk import list_entries, lists, rules
from fraudlake_desk.documents.letters import shown
from fraudlake_desk.web import forms
from fraudlake_desk.web.errors import MissingError
from fraudlake_desk.web.names import segment
from fraudlake_desk.web.site import Site, done, moment

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from fraudlake_desk.list_entries import Listed

_MOST = 200
"""Most entries that the page shows."""


def routes(site: Site) -> list[Route]:
    """Return the routes."""

    def one_list(request: Request) -> Response:
        store = site.store_of(request.state.person)
        name = request.path_params["name"]
        present = rules.read(store)[0]
        if name not in {existing for existing, _ in lists.read_names(store, present)}:
            raise MissingError(f"there is no list {shown(name)}")
        entries = lists.entries(store, present, name, is_all=True, limit=_MOST)
        return site.page(
            request,
            "list.html",
            page="Rules",
            name=name,
            notice=ended(request, entries),
            entries=entries,
            most=_MOST,
            longest=event_log.LONGEST,
        )

    async def end(request: Request) -> Response:
        fields = await forms.read_of_lead(request, site.access)
        person = request.state.person
        entry_id = request.path_params["entry"]

        def carry_out() -> str:
            entry = list_entries.end(site.store_of(person), person.name, entry_id, fields.get("reason", ""))
            page, place = ("/rules", "#suppressed") if entry.rule else (f"/lists/{segment(entry.list)}", "")
            return f"{page}?ended={entry.entry_id}{place}"

        return done(request, await forms.carried_out(carry_out))

    return [
        Route("/lists/{name:text}", one_list),
        Route("/entries/{entry:str}/end", end, methods=["POST"]),
    ]


def ended(request: Request, listed: list[Listed]) -> str | None:
    """Return the notice about a list entry that the form has ended."""
    entry = next((one.entry for one in listed if one.entry.entry_id == request.query_params.get("ended")), None)
    if entry is None:
        return None
    begins = f"from {moment(entry.ends_at)} UTC on"
    if entry.rule:
        return f"{entry.rule} alerts for {shown(entry.entity_key)} again {begins}."
    return f"{shown(entry.entity_key)} is not on {entry.list} any more {begins}."
