"""A list entry in the terminal: says what it concerns, and ends it."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from fraudlake.text.counts import counted
from fraudlake_cli.app import App, person_of

if TYPE_CHECKING:
    from fraudlake.detection.list_entries import Entry
    from fraudlake_desk.list_entries import Listed


def say(app: App, entry: Entry) -> None:
    """Print an entry."""
    app.say({"entry": asdict(entry)}, f"entry {entry.entry_id}: {_span(entry)}")


def end(app: App, entry: str, author: str | None, reason: str | None, flags: dict[str, str | None]) -> None:
    """End an entry early, given by the beginning of its id, and print it."""
    from fraudlake_desk import list_entries

    store = app.open_store(**flags)
    say(app, list_entries.end(store, person_of(store, author), entry, reason or ""))


def line(listed: Listed) -> str:
    """Return an entry as a line of a listing."""
    entry = listed.entry
    ended = f"; ended by {entry.ended_by}: {entry.ended_because}" if entry.ended_by else ""
    return (
        f"{entry.entry_id}  {listed.state}  {_span(entry)}; {counted(listed.alerts, 'alert')} suppressed; "
        f"{entry.author}: {entry.reason}{ended}"
    )


def _span(entry: Entry) -> str:
    key = f"{entry.entity} {entry.entity_key}"
    what = f"{entry.rule} raises no alerts for {key}" if entry.rule else f"{key} is on {entry.list}"
    return f"{what} from {entry.starts_at:%Y-%m-%d %H:%M} to {entry.ends_at:%Y-%m-%d %H:%M} UTC"
