"""List entries: reads entries from ``silver_list_entries``, and decides which alerts they suppress.

An entry applies to payments by event time, and only to those after it was written: it begins after the clock, and after
the newest payment that silver has at that time. It ends early in the same way. So in a replay or a backtest an entry
suppresses the same alerts as in the stream, in whatever order the rows arrived. The exceptions are payments that arrive
in between with an event time more than :data:`MARGIN` ahead of the clock.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from fraudlake import tables
from fraudlake.detection import rule_entity
from fraudlake.detection.rule_entity import THE_ACCOUNT, Entity
from fraudlake.entity import ACCOUNT, key_text
from fraudlake.errors import UsageError
from fraudlake.rules.columns import query_columns
from fraudlake.text import json_text
from fraudlake.text.sql_text import value

if TYPE_CHECKING:
    from fraudlake.lake.store import Store
    from fraudlake.rules.rule_set import RuleSet
    from fraudlake.settings import Settings

SUPPRESSED = "suppressed"
"""The list of keys for which a rule raises no alerts."""
MARGIN = timedelta(minutes=1)
"""Time allowed for writing an entry to the table, and for differences between the clocks of machines."""
LONGEST = timedelta(days=366)
"""The longest time from now to the end of an entry."""
_MINUTE = timedelta(minutes=1)


@dataclass(frozen=True)
class Entry:
    """An entry of the list :data:`SUPPRESSED`; it applies to event times from ``starts_at`` to before ``ends_at``."""

    entry_id: str
    rule: str
    entity: str
    entity_key: str
    account_id: str | None
    starts_at: datetime
    ends_at: datetime
    reason: str | None
    author: str
    at: datetime
    ended_by: str | None = None
    """Who ended it early."""
    ended_because: str | None = None

    @property
    def added(self) -> dict[str, Any]:
        """The row of ``silver_list_entries`` that adds it."""
        names = ("entry_id", "rule", "entity", "entity_key", "account_id", "starts_at", "ends_at", "reason", "author")
        return {**{name: getattr(self, name) for name in names}, "event": "added", "list": SUPPRESSED, "at": self.at}

    def ended(self, ends_at: datetime, reason: str, author: str, at: datetime) -> dict[str, Any]:
        """Return the row of ``silver_list_entries`` that ends it early."""
        return {**self.added, "event": "ended", "ends_at": ends_at, "reason": reason, "author": author, "at": at}


def as_entries(rows: Iterable[Mapping[str, Any]]) -> list[Entry]:
    """Read the entries from rows of ``silver_list_entries``, the latest first."""
    entries: dict[str, Entry] = {}
    # An end comes after its entry. Of two that people write at once the earlier one counts, so it comes last.
    for row in sorted(rows, key=lambda row: (str(row["event"]), -row["ends_at"].timestamp())):
        if row["event"] == "added":
            entries[row["entry_id"]] = Entry(**{name: row[name] for name in Entry.__annotations__ if name in row})
        elif row["entry_id"] in entries:
            entry = entries[row["entry_id"]]
            ends_at = min(entry.ends_at, row["ends_at"])
            entries[entry.entry_id] = replace(
                entry, ends_at=ends_at, ended_by=row["author"], ended_because=row["reason"]
            )
    return sorted(entries.values(), key=lambda entry: (entry.starts_at, entry.entry_id), reverse=True)


def read(store: Store, condition: str = "true") -> list[Entry]:
    """Return the entries whose rows fulfil a condition in SQL, the latest first."""
    table = tables.SILVER_LIST_ENTRIES
    suppressed = f"list = {value(SUPPRESSED)}"
    return as_entries(store.query(f"SELECT * FROM {table.name} WHERE {suppressed} AND {condition}", table).to_pylist())


def read_rule(store: Store, rule: str) -> list[Entry]:
    """Return the entries of a rule."""
    return read(store, f"rule = {value(rule)}")


def suppressing(alerts: pa.Table, entries: Iterable[Entry]) -> pa.Array:
    """Return the id of the entry that suppresses each alert, the earliest one if there are several, or null.

    Args:
        alerts: alerts of a rule, with ``entity, entity_key`` and ``time`` (UTC).
        entries: entries of the rule.
    """
    by_key: dict[tuple[str, str], list[Entry]] = defaultdict(list)
    for entry in sorted(entries, key=lambda entry: (entry.starts_at, entry.entry_id)):
        by_key[entry.entity, entry.entity_key].append(entry)
    columns = (alerts[name].to_pylist() for name in ("entity", "entity_key", "time"))
    return pa.array(
        [
            next((one.entry_id for one in by_key.get((name, key), ()) if one.starts_at <= time < one.ends_at), None)
            for name, key, time in zip(*columns, strict=True)
        ],
        pa.string(),
    )


def first_minute(now: datetime, newest: datetime | None) -> datetime:
    """Return the first full minute after both the clock, plus a margin, and the newest payment."""
    after = max(now + MARGIN, newest or now)
    return after.replace(second=0, microsecond=0) + _MINUTE


def entities_of(rules: RuleSet, name: str, settings: Settings) -> dict[str, Entity]:
    """Return the entities, by name, of a rule's versions that are not retired; none if it is retired or unknown.

    Raises:
        UsageError: a version no longer fits the columns.
    """
    present = [version.rule for version in rules.versions if version.rule.name == name and version.status != "retired"]
    by_name = {}
    for rule in present:
        if rule.looks_at == "predictions":
            by_name[ACCOUNT] = THE_ACCOUNT
            continue
        compiled = rule.compile(query_columns(settings.columns), settings.entities)
        by = rule_entity.find_entity(rule, compiled.partition_by, settings)
        by_name[by.name] = by
    return by_name


def key_of(by: Entity, given: str) -> tuple[str, str | None]:
    """Return a key in the form that alerts use, and the account in it, if any.

    Raises:
        UsageError: it is not a key of the entity.
    """
    if not given.strip():
        raise UsageError(f"name the key of the {by.name}: nothing was written")
    if len(by.columns) == 1:
        return given, given if by.columns == THE_ACCOUNT.columns else None
    try:
        values = json.loads(given)
    except ValueError:
        values = None
    if not isinstance(values, dict) or values.keys() != set(by.columns):
        example = json_text.dumps(dict.fromkeys(by.columns, "…"), ensure_ascii=False)
        raise UsageError(f"a key of {by.name} has {len(by.columns)} columns: give them as {example}")
    return key_text({name: values[name] for name in by.columns}), values.get("account_id")


def require_end(ends_at: datetime, now: datetime) -> None:
    """Refuse an end that is too far away.

    Raises:
        UsageError: the end is more than :data:`LONGEST` away.
    """
    if ends_at > now + LONGEST:
        raise UsageError(f"{ends_at:%Y-%m-%d} is more than {LONGEST.days} days away: nothing was written")


def require_span(starts_at: datetime, ends_at: datetime) -> None:
    """Refuse an end that is not later than the start.

    Raises:
        UsageError: the end is not later; the message says when the entry would begin.
    """
    if ends_at <= starts_at:
        raise UsageError(
            f"it would begin at {starts_at.astimezone(UTC):%Y-%m-%d %H:%M} UTC, after the newest payment and the "
            f"clock, and end at {ends_at:%Y-%m-%d %H:%M}: choose a later day; nothing was written"
        )
