"""Attached files: uploads from the case's page, and downloads; no page ever renders a file's content."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode

from starlette.responses import Response
from starlette.routing import Route

from fraudlake.review import event_log, items
from fraudlake_desk.documents import letters
from fraudlake_desk.review import attachments
from fraudlake_desk.web import forms
from fraudlake_desk.web.errors import MissingError, PageError
from fraudlake_desk.web.names import segment
from fraudlake_desk.web.queue_filter import QueueFilter
from fraudlake_desk.web.queue_page import day_of
from fraudlake_desk.web.site import done

if TYPE_CHECKING:
    from starlette.requests import Request

    from fraudlake_desk.web.forms import Upload
    from fraudlake_desk.web.site import Site


def routes(site: Site) -> list[Route]:
    """Return the routes."""

    async def attach(request: Request) -> Response:
        upload = await forms.read_upload(request, site.access, attachments.LARGEST)
        return done(request, await forms.carried_out(lambda: sent(request, upload)))

    def sent(request: Request, upload: Upload) -> str:
        person = request.state.person
        name = request.path_params["name"]
        fields = upload.fields
        store = site.store_of(person)
        day = day_of(fields.get("day"))
        id_ = forms.event_id(fields)
        named = items.find(store, name, day)
        if named is None:
            raise MissingError("there is no such item any more: it was forgotten or replaced")
        if named.part is not None:
            raise PageError(f"this is part of case {named.item.item_id} now: load the page again")
        with store.in_turn():
            attachments.attach(store, named.item, person.name, id_, upload.name, upload.content, fields.get("note"))
        query = {"done": id_} | ({"day": str(day)} if day else {}) | QueueFilter.read(fields).fields
        return f"/items/{segment(name)}?{urlencode(query)}"

    def download(request: Request) -> Response:
        store = site.store_of(request.state.person)
        name = request.path_params["name"]
        named = items.find(store, name)
        events = event_log.read_events_of_items(store, named.item.all_names) if named else []
        event = next((one for one in events if one.event_id == request.path_params["event_id"]), None)
        if event is None or event.file_name is None:
            raise MissingError("there is no such file: it was forgotten, or was never attached to this item")
        # Invisible letters could make the name look like another one, so it is saved as the pages show it.
        file = quote(letters.disambiguate(event.file_name), safe="")
        return Response(
            attachments.read(store, event),
            media_type="application/octet-stream",
            headers={"content-disposition": f"attachment; filename*=UTF-8''{file}"},
        )

    return [
        Route("/items/{name:text}/attach", attach, methods=["POST"]),
        Route("/items/{name:text}/files/{event_id:str}", download),
    ]
