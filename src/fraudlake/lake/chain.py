"""Chain: each event of a table carries a hash of its content and of the previous hash, so tampering is detected."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import Field, asdict, dataclass, fields
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar

from fraudlake.errors import FraudlakeError
from fraudlake.lake import conflict
from fraudlake.text.counts import counted

if TYPE_CHECKING:
    import pyarrow as pa

    from fraudlake.lake.store import Store
    from fraudlake.tables import Table

_NOT_CHAINED = ("hash", "is_erased")
_READ: dict[str, Callable[[Any], Any]] = {
    "at": datetime.fromisoformat,
    "expires_at": datetime.fromisoformat,
    "day": date.fromisoformat,
    "transaction_ids": tuple,
    "fraud_ids": tuple,
    "account_ids": tuple,
}
"""Readers of the fields whose values JSON has in another form."""
_ATTEMPTS = 40
_LONGEST_PAUSE = 0.5
"""Maximum seconds between two attempts to write."""


class Chained(Protocol):
    """A frozen dataclass of an event."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    @property
    def number(self) -> int:
        """Its number, from 1; no two events have the same."""

    @property
    def hash(self) -> str | None:
        """What :func:`link` returned for it."""

    @property
    def is_erased(self) -> bool | None:
        """Whether ``forget`` has removed parts of it, so that its hash is not that of the rest."""


T = TypeVar("T")
Event = TypeVar("Event", bound=Chained)


def link(before: str | None, event: Chained) -> str:
    """Return the hash of an event, given the hash of the event before it (None for the first event).

    Nulls are not hashed, so that hashes stay valid when events get another field.
    """
    content = {name: value for name, value in asdict(event).items() if value is not None and name not in _NOT_CHAINED}
    text = json.dumps([before, content], sort_keys=True, default=_text)
    return hashlib.sha256(text.encode()).hexdigest()


def as_json(event: Chained) -> str:
    """Return an event as one line of JSON, without nulls."""
    content = {name: value for name, value in asdict(event).items() if value is not None}
    return json.dumps(content, sort_keys=True, ensure_ascii=False, default=_text)


def from_json(kind: type[Event], text: str, **changes: Any) -> Event:
    """Return the event that :func:`as_json` wrote; ``changes`` are fields to replace or add."""
    names = {field.name for field in fields(kind)}
    values = {name: value for name, value in json.loads(text).items() if name in names}
    return kind(**{name: _READ[name](value) if name in _READ else value for name, value in values.items()} | changes)


def _text(value: Any) -> str:
    assert isinstance(value, date)
    return value.astimezone(UTC).isoformat() if isinstance(value, datetime) else value.isoformat()


def write(store: Store, table: Table, propose: Callable[[], tuple[T, pa.Table | None]], about: str) -> T:
    """Write numbered events after all others, in one commit, and return what ``propose`` made of them.

    Delta accepts one event per number, whatever the clocks of the writers say. If others write in the meantime, the
    events are proposed again.

    Args:
        store: the lake's tables.
        table: the table of the events, with the key ``number``.
        propose: reads the table, and returns an outcome and the rows still to write; None once they are written.
        about: what the events are about, for the message.

    Raises:
        FraudlakeError: concurrent writers won every attempt.
    """
    for attempt in range(_ATTEMPTS + 1):
        if attempt > 1:  # the first retry usually finds that its own events were written
            conflict.pause(_LONGEST_PAUSE)
        outcome, rows = propose()
        if rows is None:
            return outcome
        if attempt == _ATTEMPTS:  # this time only check whether the last attempt was written
            break
        try:
            store.insert_all(table, rows, "number")
        except Exception as error:
            if not conflict.is_conflict(error):
                raise
    raise FraudlakeError(f"others write events all the time, and nothing was written about {about}: try again")


@dataclass(frozen=True)
class Verified:
    """The result of checking the chain of a table's events."""

    events: int
    """Number of the last event."""
    head: str | None
    """The hash of the last event; if noted elsewhere, it proves later that no event up to here was cut off."""
    erased: int
    """Events from which ``forget`` has removed fields, so their content cannot be verified."""
    faults: list[str]
    """The faults, each with the number of its event; empty if the chain is intact."""


def verify(
    events: Iterable[Chained],
    known: tuple[int, str] | None = None,
    may_be_erased: bool = True,
    after: tuple[int, str | None] = (0, None),
) -> Verified:
    """Check that no event was removed, altered or inserted.

    Args:
        events: all events in the order of their numbers.
        known: number and hash of an event, as noted earlier; an event with both must still exist.
        may_be_erased: whether an account was ever forgotten.
        after: number and hash of the event before the first of a part of all events.
    """
    faults: list[str] = []
    hashes: dict[int, str | None] = {}
    last, before = after
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
