"""The report page: downloads the report of some days as a file."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from starlette.responses import HTMLResponse
from starlette.routing import Route

from fraudlake_desk.documents import document
from fraudlake_desk.documents import report as reports
from fraudlake_desk.web.queue_page import day_of

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from fraudlake_desk.web.site import Site


def routes(site: Site) -> list[Route]:
    """Return the routes."""

    def report(request: Request) -> Response:
        store = site.store_of(request.state.person)
        now = datetime.now(UTC)
        first, last = (day_of(request.query_params.get(name)) for name in ("from", "to"))
        days = reports.days_of(store, first, last)
        made = document.render(reports.report(store, days), now)
        span = f"-{days.first}-{days.last}" if days else ""
        # The pages' content policy forbids the report's own style, so it is downloaded.
        return HTMLResponse(made, headers={"content-disposition": f'attachment; filename="report{span}.html"'})

    return [Route("/report", report)]
