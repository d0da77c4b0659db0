"""Forms: parses the body of a request, and refuses forms of other sites and those that are too large."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import parse_qsl

from anyio import CapacityLimiter, to_thread
from starlette.datastructures import ImmutableMultiDict, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser

from fraudlake_desk.web.errors import PageError, RefusedError, TooLargeError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from starlette.requests import Request

    from fraudlake_desk.web.access import Access, Person

T = TypeVar("T")
LARGEST = 512 << 10
"""Most bytes of a form: enough for the longest note, percent-encoded, and the payments that have a box each."""
_READ = 8 << 20
"""Excess bytes that are read and discarded, since a browser shows no answer before it has sent everything."""
_FIELDS = 2_100
"""Most fields of a form: those of a verdict, and the payments that have a box each."""
_FEW = 20
"""Most fields of a form with a file."""
_WRITERS = CapacityLimiter(40)


async def carried_out(write: Callable[[], T]) -> T:
    """Run the action of a form in a thread of its own pool, so that it does not wait for threads that render pages."""
    return await to_thread.run_sync(write, limiter=_WRITERS)


Fields = ImmutableMultiDict[str, str]
"""The fields of a form; several may have the same name."""


def event_id(fields: Fields) -> str:
    """Return the event id in a form.

    Raises:
        PageError: the form has no valid id.
    """
    id_ = fields.get("event_id", "")
    if len(id_) != 32 or not id_.isalnum():
        raise PageError("the form has no id of its event: load the page again")
    return id_


async def read(request: Request, access: Access) -> Fields:
    """Return the fields of a form of an analyst.

    Raises:
        RefusedError: the person only reads, or the form is not one of this desk's pages.
        TooLargeError: the form is too large.
        PageError: the body is not a form.
    """
    fields = await _read(request, access)
    _require_analyst(request.state.person)
    return fields


async def _read(request: Request, access: Access) -> Fields:
    """Return the fields of a form of anybody: see :func:`read`."""
    person = request.state.person
    body = bytearray()
    refusal = f"this is more than {LARGEST >> 10} KB, and nothing was written: shorten the note"
    async for chunk in _limited(request, LARGEST, refusal):
        body += chunk
    try:
        pairs = parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=_FIELDS, errors="strict")
    except ValueError:
        raise PageError("this is not a form of the desk") from None
    fields = Fields(pairs)
    access.require_own_form(request, person, fields.get("form", ""))
    return fields


@dataclass(frozen=True)
class Upload:
    """A form with a file."""

    fields: Fields
    name: str
    """The file's name, as the browser gives it."""
    content: bytes


async def read_upload(request: Request, access: Access, largest: int) -> Upload:
    """Return a form of an analyst with a file; the body of a reader's request is not even read.

    Args:
        request: the request.
        access: checks the form's origin.
        largest: the maximum size of the file in bytes.

    Raises:
        RefusedError: the person only reads, or the form is not one of this desk's pages.
        TooLargeError: the body or the file is too large.
        PageError: the body is not a form, or has no file.
    """
    person = request.state.person
    _require_analyst(person)  # before anything is read
    try:
        body = _limited(request, largest + LARGEST, _too_large(largest))
        form = await MultiPartParser(request.headers, body, max_files=1, max_fields=_FEW).parse()
    except (MultiPartException, KeyError):
        raise PageError("this is not a form of the desk") from None
    try:
        fields = Fields([(name, value) for name, value in form.multi_items() if isinstance(value, str)])
        access.require_own_form(request, person, fields.get("form", ""))
        file = form.get("file")
        if not isinstance(file, UploadFile) or not file.filename:
            raise PageError("no file is chosen, so nothing was written")
        if (file.size or 0) > largest:
            raise TooLargeError(_too_large(largest))
        return Upload(fields, file.filename, await file.read())
    finally:
        await form.close()


def _too_large(largest: int) -> str:
    return f"this file is larger than {largest >> 20} MB, and nothing was written"


async def _limited(request: Request, most: int, refusal: str) -> AsyncGenerator[bytes]:
    """Yield the chunks of a body up to ``most`` bytes; discard the rest of a larger one, and refuse it.

    Raises:
        TooLargeError: the body is larger.
    """
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size <= most:
            yield chunk
        elif size > most + _READ:
            break
    if size > most:
        raise TooLargeError(refusal)


def _require_analyst(person: Person) -> None:
    if not person.may_decide:
        raise RefusedError(f"{person.name} may only read: ask to become an analyst")


async def read_of_author(request: Request, access: Access) -> Fields:
    """Return the fields of a form of a rule author.

    Raises:
        RefusedError: the person is not a rule author, or see :func:`read`.
    """
    fields = await _read(request, access)
    if not request.state.person.may_author:
        raise RefusedError(f"{request.state.person.name} may not change rules: ask a rule author")
    return fields


async def read_of_asker(request: Request, access: Access) -> Fields:
    """Return the fields of a form of a person who may ask for what needs two keys.

    Raises:
        RefusedError: the person may not, or see :func:`read`.
    """
    fields = await _read(request, access)
    if not request.state.person.may_ask:
        raise RefusedError(f"{request.state.person.name} may only read: ask to become an analyst or a rule author")
    return fields


async def read_of_approver(request: Request, access: Access) -> Fields:
    """Return the fields of a form of an approver.

    Raises:
        RefusedError: the person is not an approver, or see :func:`read`.
    """
    fields = await _read(request, access)
    if not request.state.person.may_approve:
        raise RefusedError(f"{request.state.person.name} may not approve: ask an approver")
    return fields


async def read_of_lead(request: Request, access: Access) -> Fields:
    """Return the fields of a form of a lead.

    Raises:
        RefusedError: the person is not a lead, or see :func:`read`.
    """
    fields = await read(request, access)
    if not request.state.person.may_suppress:
        raise RefusedError(f"{request.state.person.name} may not change lists or suppress rules: ask a lead")
    return fields
