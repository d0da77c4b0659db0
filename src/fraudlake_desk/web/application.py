"""Application: assembles the routes of the pages, and wraps them in the guard."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from fraudlake.approvals.gate import WaitingError
from fraudlake.errors import FraudlakeError, first_line
from fraudlake_desk.web import (
    approvals_page,
    attachment_page,
    case_page,
    health_page,
    lists_page,
    people_page,
    queue_page,
    report_page,
    rules_page,
    several_page,
)
from fraudlake_desk.web.errors import MissingError, PageError
from fraudlake_desk.web.guard import Guard
from fraudlake_desk.web.site import static_files, wants_json

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import ASGIApp

    from fraudlake_desk.web.site import Site

_LOG = logging.getLogger("fraudlake.desk")
_TITLES = {
    403: "You may not do this",
    404: "Nothing of that name",
    413: "That is too large",
    429: "Too many requests",
}


def application(site: Site) -> ASGIApp:
    """Return the application of a site."""

    def refused(request: Request, error: Exception) -> Response:
        return _error(site, request, error)

    modules = (
        queue_page,
        several_page,
        attachment_page,
        case_page,
        lists_page,
        rules_page,
        approvals_page,
        people_page,
        health_page,
        report_page,
    )
    routes = [Route("/static/{name}", _static), *(route for module in modules for route in module.routes(site))]
    handlers = dict.fromkeys((FraudlakeError, HTTPException, Exception), refused)
    return Guard(Starlette(routes=routes, exception_handlers=handlers), site.access, refused)


async def _static(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in static_files():
        raise MissingError(f"there is no file {name}")
    content, type_ = static_files()[name]
    return Response(content, media_type=type_, headers={"cache-control": "max-age=31536000, immutable"})


def _error(site: Site, request: Request, error: Exception) -> Response:
    """Return an error as a page, or as JSON or text for a script."""
    if isinstance(error, PageError):
        status = error.status
        text = str(error)
    elif isinstance(error, FraudlakeError):
        status = 409
        text = str(error)
    elif isinstance(error, HTTPException):
        status = error.status_code
        text = str(error.detail)
    else:
        status = 500
        text = f"{first_line(error)}: nothing was written after this"
        _LOG.error("%s %s failed", request.method, request.url.path, exc_info=error)
    if wants_json(request):
        return JSONResponse({"error": text}, status)
    if request.headers.get("x-part"):  # the script of a page asks for a part of it
        return Response(text, status, media_type="text/plain")
    waits = "A second person must agree" if isinstance(error, WaitingError) else "This did not work"
    title = _TITLES.get(status, waits)
    return site.page(request, "message.html", status, title=title, text=text)
