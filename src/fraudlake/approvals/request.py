"""Request: what the events on something that a person asked for amount to, and which events may follow."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from fraudlake.approvals.event import Event, Kind


@dataclass(frozen=True)
class Request:
    """Something that a person asked for, with the allowed events that followed."""

    event: Event
    followed: tuple[Event, ...] = ()

    @property
    def number(self) -> int:
        """Its number."""
        return self.event.number

    @property
    def status(self) -> str:
        """What has happened to it: waiting, approved, rejected, withdrawn or carried out."""
        return self.followed[-1].kind if self.followed else "waiting"

    @property
    def is_open(self) -> bool:
        """Whether it waits, or is approved and not carried out."""
        return self.status in ("waiting", "approved")

    @property
    def approval(self) -> Event | None:
        """The event by which a second person agreed."""
        return next((event for event in self.followed if event.kind == "approved"), None)

    @property
    def before(self) -> dict[str, Any]:
        """The state on which it was asked; empty if ``forget`` has erased it."""
        return _read(self.event.before)

    @property
    def after(self) -> dict[str, Any]:
        """The state that it leads to, in the form of :attr:`before`."""
        return _read(self.event.after)

    @property
    def arguments(self) -> dict[str, Any]:
        """The values with which it is carried out."""
        return _read(self.event.arguments)

    @property
    def changes(self) -> list[tuple[str, Any, Any]]:
        """The parts of the state that it changes, with the value before and after; None for a missing value."""
        return differences(self.before, self.after)


def _read(text: str | None) -> dict[str, Any]:
    return dict(json.loads(text)) if text else {}


def differences(before: dict[str, Any], after: dict[str, Any]) -> list[tuple[str, Any, Any]]:
    """Return the names whose values differ between two states, with both values; None for a missing value."""
    names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    return [(name, before.get(name), after.get(name)) for name in names]


def in_words(before: Any, after: Any) -> tuple[str, str, str]:
    """Return what differs between two values of a state, before and after, and the fields that stay, in words."""
    if not (isinstance(before, dict) and isinstance(after, dict)):
        return _words(before), _words(after), ""
    changed = {name for name, _, _ in differences(before, after)}
    old, new = ({name: part for name, part in one.items() if name in changed} for one in (before, after))
    return _words(old), _words(new), _words({name: part for name, part in after.items() if name not in changed})


def _words(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_words(part)}" for name, part in value.items())
    return "missing" if value is None else str(value)


def is_same_person(one: str, other: str) -> bool:
    """Return whether two names are one person's: case, blanks around them and forms of letters do not count."""
    return _plain(one) == _plain(other)


def _plain(name: str) -> str:
    return unicodedata.normalize("NFKC", name).strip().casefold()


def refusal(request: Request, kind: Kind, person: str) -> str | None:
    """Return why a person's event may not follow on a request; None if it may."""
    event = request.event
    is_own = is_same_person(event.person, person)
    if kind in ("approved", "rejected"):
        if is_own:
            return (
                f"request {request.number} is by {event.person}: another person must decide; its author can withdraw it"
            )
        return None if request.status == "waiting" else _settled(request)
    if kind == "withdrawn":
        if not is_own:
            return f"request {request.number} is by {event.person}, who alone can withdraw it: reject it instead"
        return None if request.is_open else _settled(request)
    if kind == "carried out":
        if request.approval is None:
            return f"request {request.number} is {request.status}: a second person must approve it first"
        return _settled(request) if request.status == "carried out" else None
    return f"request {request.number} was asked already"


def _settled(request: Request) -> str:
    last = request.followed[-1]
    return f"request {request.number} is {request.status} already, by {last.person} at {last.at:%Y-%m-%d %H:%M:%S} UTC"


def replay(events: Iterable[Event]) -> tuple[dict[int, Request], list[str]]:
    """Return the requests by number, and a sentence on each event that is forbidden, which does not count.

    Args:
        events: all events in the order of their numbers.
    """
    requests: dict[int, Request] = {}
    breaches = []
    for event in events:
        breach = _breach(requests, event)
        if breach is None:
            requests[event.request] = _after(requests, event)
        else:
            breaches.append(f"event {event.number} ({event.kind} by {event.person}) is forbidden: {breach}")
    return requests, breaches


def _breach(requests: dict[int, Request], event: Event) -> str | None:
    if event.kind == "requested":
        return None if event.request == event.number else f"it names request {event.request}"
    request = requests.get(event.request)
    return f"there is no request {event.request}" if request is None else refusal(request, event.kind, event.person)


def _after(requests: dict[int, Request], event: Event) -> Request:
    if event.kind == "requested":
        return Request(event)
    request = requests[event.request]
    return replace(request, followed=(*request.followed, event))
