"""Attachments: stores files that analysts attach to an item under their SHA-256, and an event for each."""

from __future__ import annotations

import hashlib
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from fraudlake.errors import FraudlakeError, UsageError
from fraudlake.review import event_log, item_state
from fraudlake_desk.documents.letters import shown
from fraudlake_desk.review import actions

if TYPE_CHECKING:
    from fraudlake.lake.store import Store
    from fraudlake.review.event import Event
    from fraudlake.review.item import Item
    from fraudlake.review.item_state import State

LARGEST = 10 << 20
"""Maximum bytes of a file."""
MOST = 50
"""Maximum number of files of an item."""
_LONGEST = 200


def attach(
    store: Store, item: Item, analyst: str, event_id: str, name: str, content: bytes, note: str | None = None
) -> Event:
    """Attach a file to an item, and return the event that names it; a repetition adds nothing.

    The file is written before the event, so a process that is killed between the two leaves an unreferenced file.
    Equal contents are stored once, however often they are attached.

    Args:
        store: the lake.
        item: the item; another analyst may hold it, or have decided on it.
        analyst: who attaches it.
        event_id: id of the event: see :func:`event_log.new_id`.
        name: the file's name; folders in front of it are left out.
        content: its bytes.
        note: further text.

    Raises:
        UsageError: the file is empty or too large, or has no name, or the item has too many.
        FraudlakeError: it cannot be written.
    """
    require_size(len(content))
    hash_ = hashlib.sha256(content).hexdigest()
    base = _base(name)

    def make(before: State) -> Event:
        if before.attached >= MOST:
            raise UsageError(f"{item.item_id} has {MOST} files already, and no item has more: nothing was written")
        return actions.attach(item, before, analyst, event_id, base, len(content), hash_, note)

    events = event_log.read_events_of_items(store, item.names)
    if all(event.event_id != event_id for event in events):
        make(item_state.state(events, datetime.now(UTC)))  # a refusal must not leave a file
        store.write_file(hash_, content)
    return event_log.record(store, item, event_id, make)


def read(store: Store, event: Event) -> bytes:
    """Return the bytes of the file that an event names.

    Raises:
        FraudlakeError: the file is gone, or its content has changed.
    """
    assert event.file_name is not None and event.file_hash is not None
    content = store.read_file(event.file_hash)
    name = shown(event.file_name)
    if content is None:
        raise FraudlakeError(f"the file {name} is not in {store.name} any more: it was removed, as 'forget' does")
    if hashlib.sha256(content).hexdigest() != event.file_hash:
        raise FraudlakeError(
            f"the file {name} was changed after {event.analyst} attached it: its SHA-256 is not that of event "
            f"{event.number}, so it is not shown"
        )
    return content


def require_size(size: int) -> None:
    """Refuse a file that is empty or too large.

    Raises:
        UsageError: the file is empty or too large.
    """
    if not size:
        raise UsageError("the file is empty: nothing was written")
    if size > LARGEST:
        raise UsageError(f"the file has {size:,} bytes, and at most {LARGEST:,} are allowed: nothing was written")


def _base(name: str) -> str:
    """Return a file's name without folders, whichever system the path is from."""
    base = re.split(r"[/\\]", name)[-1].strip()
    if base in ("", ".", ".."):
        raise UsageError("the file has no name: nothing was written")
    if len(base) > _LONGEST:
        raise UsageError(f"the file's name has {len(base):,} letters, and at most {_LONGEST} are allowed: rename it")
    return base
