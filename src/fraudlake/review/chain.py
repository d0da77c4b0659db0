"""Chain: each review event carries a hash of its content and of the previous hash, so that tampering is detected."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

from fraudlake.text.counts import counted

if TYPE_CHECKING:
    from fraudlake.review.event import Event

_NOT_CHAINED = ("hash", "is_erased")
_LATER = ("merged_into", "file_name", "file_size", "file_hash")
"""Fields that the first lakes lack: nulls are not hashed, so that the hashes of old events stay valid."""


def link(before: str | None, event: Event) -> str:
    """Return the hash of an event, given the hash of the event before it (None for the first event)."""
    content = {name: given for name, given in asdict(event).items() if name not in _NOT_CHAINED}
    content = {name: given for name, given in content.items() if given is not None or name not in _LATER}
    text = json.dumps([before, content], sort_keys=True, default=_text)
    return hashlib.sha256(text.encode()).hexdigest()


def _text(given: Any) -> str:
    assert isinstance(given, date)
    return given.astimezone(UTC).isoformat() if isinstance(given, datetime) else given.isoformat()


@dataclass(frozen=True)
class Verified:
    """The result of checking the chain of a lake's events."""

    events: int
    head: str | None
    """The hash of the last event; if noted elsewhere, it proves later that no event up to here was cut off."""
    erased: int
    """Events from which ``forget`` has removed fields, so their content cannot be verified."""
    faults: list[str]
    """The faults, each with the number of its event; empty if the chain is intact."""


def verify(events: Iterable[Event], known: tuple[int, str] | None = None, may_be_erased: bool = True) -> Verified:
    """Check that no event was removed, altered or inserted.

    Args:
        events: all events in the order of their numbers.
        known: number and hash of an event, as noted earlier; an event with both must still exist.
        may_be_erased: whether an account was ever forgotten.
    """
    faults: list[str] = []
    hashes: dict[int, str | None] = {}
    before = None
    last = 0
    erased = 0
    for event in events:
        if event.number == last:
            faults.append(f"two events have the number {last}")
        elif event.number != last + 1:
            faults.append(
                f"event {last + 1} is missing" + f", and all to {event.number - 1}" * (event.number > last + 2)
            )
        elif not event.is_erased and event.hash != link(before, event):
            faults.append(f"event {event.number} does not fit the hashes: it or the one before it was altered")
        erased += bool(event.is_erased)
        before = event.hash
        last = event.number
        hashes[last] = before
    if known is not None and hashes.get(known[0]) != known[1]:
        faults.append(f"event {known[0]} has not the hash that was noted: events were cut off or written anew")
    if erased and not may_be_erased:
        faults.append(f"{counted(erased, 'event')} erased, and no account was ever forgotten")
    return Verified(last, before, erased, faults)
