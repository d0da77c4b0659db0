"""Forms: the body of a request becomes its fields, if it is one of the desk's own forms and not too large."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar
from urllib.parse import parse_qsl

from anyio import CapacityLimiter, to_thread
from starlette.datastructures import ImmutableMultiDict

from fraudlake.desk.web.errors import PageError, RefusedError, TooLargeError

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request

    from fraudlake.desk.web.access import Access

T = TypeVar("T")
LARGEST = 512 << 10
"""Bytes of a form; the longest note, with each letter encoded, and all payments of a history have fewer."""
_READ = 8 << 20
"""Bytes that are read and thrown away, since a browser shows no answer before it has sent everything."""
_FIELDS = 2_100
"""Fields of a form: those of a verdict, and the payments of a history that may be marked."""
_WRITERS = CapacityLimiter(40)


async def carried_out(write: Callable[[], T]) -> T:
    """Do what a form says in a thread, and return what comes of it; it does not wait for threads that make pages."""
    return await to_thread.run_sync(write, limiter=_WRITERS)


Fields = ImmutableMultiDict[str, str]
"""The fields of a form, of which several may have one name."""


async def read(request: Request, access: Access) -> Fields:
    """Return the fields of a form of an analyst.

    Raises:
        RefusedError: the person only reads, or the form is not one of this desk's pages.
        TooLargeError: it is too large.
        PageError: it is not a form.
    """
    person = request.state.person
    body, size = bytearray(), 0
    async for chunk in request.stream():
        size += len(chunk)
        if size <= LARGEST:
            body += chunk
        elif size > _READ:
            break
    if size > LARGEST:
        raise TooLargeError(f"this is more than {LARGEST >> 10} KB, and nothing was written: shorten the note")
    try:
        pairs = parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=_FIELDS, errors="strict")
    except ValueError:
        raise PageError("this is not a form of the desk") from None
    fields = Fields(pairs)
    access.require_own_form(request, person, fields.get("form", ""))
    if not person.may_decide:
        raise RefusedError(f"{person.name} may read, and analysts decide: ask to become one")
    return fields


def event_id(fields: Fields) -> str:
    """Return the id that a form has for its event.

    Raises:
        PageError: it has none.
    """
    given = fields.get("event_id", "")
    if len(given) != 32 or not given.isalnum():
        raise PageError("the form has no id of its event: load the page again")
    return given
