"""Site: the resources that all pages share: the store of a person, templates with their formats, and static files."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response

from fraudlake.text.counts import counted
from fraudlake_desk.documents.document import text
from fraudlake_desk.documents.letters import replace_invisible, shown
from fraudlake_desk.lookup.money import amount
from fraudlake_desk.web.cut import brief, cut, whole
from fraudlake_desk.web.names import account, segment

if TYPE_CHECKING:
    from starlette.requests import Request

    from fraudlake.lake.store import Store
    from fraudlake_desk.web.access import Access, Person

_TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


@dataclass(frozen=True)
class Site:
    """A lake's pages."""

    store_of: Callable[[Person], Store]
    """Opens the tables for a person, in a workspace with that person's rights."""
    access: Access
    activity: Callable[[], Mapping[str, Any]] | None = None
    """Returns the state of a local lake's streams: ``gaps``, sentences on counts that do not add up, ``streams``, and
    ``at`` (UTC). None in a workspace, whose jobs show it."""

    def page(self, request: Request, template: str, status: int = 200, **values: Any) -> Response:
        """Render a template as a page."""
        person = getattr(request.state, "person", None)
        token = self.access.form_token(person) if person else None
        shared = {"person": person, "form_token": token, "page": None, "notice": None}
        shared["is_part"] = bool(request.headers.get("x-part"))
        return HTMLResponse(_templates().get_template(template).render(shared | values), status)


@cache
def static_files() -> dict[str, tuple[bytes, str]]:
    """Return the static files with their types, by name."""
    package = resources.files("fraudlake_desk")
    paths = [package / "documents" / "charts.css", *(package / "web" / "static").iterdir()]
    return {path.name: (path.read_bytes(), _TYPES[path.name[path.name.rindex(".") :]]) for path in paths}


@cache
def _templates() -> Environment:
    made = Environment(
        loader=PackageLoader("fraudlake_desk.web"), autoescape=True, undefined=StrictUndefined, auto_reload=False
    )
    made.filters |= {
        "amount": amount,
        "brief": brief,
        "counted": counted,
        "cut": cut,
        "day": day,
        "decimals": decimals,
        "moment": moment,
        "number": number,
        "path": segment,
        "account_address": account,
        "shown": shown,
        "visible": replace_invisible,
        "plain": plain,
        "share": share,
        "whole": whole,
        "text": text,
        "words": words,
    }
    # An address contains a hash of the content, so browsers may cache it forever.
    hashes = {name: hashlib.sha256(content).hexdigest()[:12] for name, (content, _) in static_files().items()}
    addresses = {name: f"/static/{name}?{hashed}" for name, hashed in hashes.items()}
    made.globals["static"] = addresses.__getitem__
    return made


def done(request: Request, address: str) -> Response:
    """Answer a form that was carried out by a redirect to an address."""
    return JSONResponse({"next": address}) if wants_json(request) else RedirectResponse(address, 303)


def wants_json(request: Request) -> bool:
    """Return whether the request comes from the script of a page."""
    return "application/json" in request.headers.get("accept", "")


def number(value: float | None) -> str:
    """Write a whole number."""
    return "" if value is None else f"{value:,.0f}"


def plain(value: float) -> str:
    """Write a number as form fields expect it."""
    return json.dumps(int(value) if float(value).is_integer() else value)


def decimals(value: float | None) -> str:
    """Write a number with two decimal places."""
    return "" if value is None else f"{value:,.2f}"


def share(value: float | None) -> str:
    """Write a share in percent."""
    return "" if value is None else f"{value:.1%}"


def moment(value: datetime | None) -> str:
    """Write a time (UTC)."""
    return "" if value is None else f"{value:%Y-%m-%d %H:%M:%S}"


def day(value: date | None) -> str:
    """Write a day."""
    return "" if value is None else f"{value:%-d %b %Y}"


def words(name: str) -> str:
    """Write a name without underscores, with a capital letter."""
    return name.replace("_", " ").capitalize()
