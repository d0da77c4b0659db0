"""List entries: adds, ends and lists the entries of ``silver_list_entries``, with the alerts that they suppressed.

Entries are of the list ``suppressed``, each for one rule, or of lists that rules name.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from datetime import UTC, date, datetime, time
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from fraudlake import tables
from fraudlake.detection import list_entries
from fraudlake.detection.list_entries import Entry
from fraudlake.entity import ACCOUNT
from fraudlake.errors import UsageError
from fraudlake.review import event_log
from fraudlake.rules.columns import query_columns
from fraudlake.rules.rule_lists import SUPPRESSED
from fraudlake.rules.rule_set import RuleSet
from fraudlake.text.sql_text import value

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from fraudlake.keyed.entity_key import Entity
    from fraudlake.lake.store import Store
    from fraudlake.review.window import Window

OF_RULES = f"list = {value(SUPPRESSED)}"
"""The condition of entries that each concern one rule."""
_TABLE = tables.SILVER_LIST_ENTRIES
_LONGEST = event_log.LONGEST["reason"]


@dataclass(frozen=True)
class Listed:
    """An entry with the number of alerts that it has suppressed, and its current state."""

    entry: Entry
    alerts: int
    """Number of alerts that it has suppressed."""
    state: str
    """``active``, ``to begin``, ``over``, ``ended``, or ``without effect``: no stream evaluates its rule for its
    entity, or a rule that names the list."""

    @property
    def is_open(self) -> bool:
        """Whether it has not ended."""
        return self.state not in ("over", "ended")

    def as_dict(self) -> dict[str, Any]:
        """Everything, for ``--json``."""
        return {**asdict(self.entry), "alerts": self.alerts, "state": self.state}


def listed(store: Store, rules: RuleSet, now: datetime | None = None, condition: str = OF_RULES) -> list[Listed]:
    """Return the entries that fulfil a condition in SQL, the latest first; their states depend on the lake's rules."""
    now = now or datetime.now(UTC)
    entries = list_entries.read(store, condition)
    if not entries:
        return []
    counts = suppressed(store, "entry_id")
    evaluated = {concerns: _evaluated_by(store, rules, *concerns) for concerns in {_concerns(one) for one in entries}}
    return [
        Listed(entry, counts.get(entry.entry_id, 0), _state(entry, evaluated[_concerns(entry)], now))
        for entry in entries
    ]


def suppressed(store: Store, column: str = "rule", window: Window | None = None) -> Mapping[str, int]:
    """Return the number of suppressed alerts by ``rule`` or ``entry_id``, on some days or in total."""
    table = tables.SILVER_SUPPRESSED_ALERTS
    of_days = f" WHERE {window.times}" if window else ""
    rows = store.query(f"SELECT {column}, count(*) AS alerts FROM {table.name}{of_days} GROUP BY {column}", table)
    return Counter({row[column]: row["alerts"] for row in rows.to_pylist()})


def read_key(store: Store, entity: str, key: str) -> list[Entry]:
    """Return the entries of a key, of any list."""
    return list_entries.read(store, f"entity = {value(entity)} AND entity_key = {value(key)}")


def _now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True)
class NewEntry:
    """Who wants an entry, why, and until the beginning of which day (UTC).

    An entry that has the id already is returned unchanged.
    """

    author: str
    reason: str
    until: date
    entry_id: str = field(default_factory=event_log.new_id)
    now: datetime = field(default_factory=_now)


def suppress(store: Store, rules: RuleSet, wanted: NewEntry, rule: str, entity: str | None, key: str) -> Entry:
    """Suppress a rule for a key, and return the entry.

    Args:
        store: the lake's tables.
        rules: the rules of the lake.
        wanted: who wants it, and why.
        rule: name of the rule.
        entity: the entity of the key; None: the one that the rule groups by.
        key: the key, as alerts have it.

    Raises:
        UsageError: there is no such rule, entity or key, an entry suppresses it already, or the day or the reason is
            not valid.
    """
    return add(store, wanted, SUPPRESSED, rule, lambda: _entity_of(store, rules, rule, entity), key)


def add(
    store: Store, wanted: NewEntry, name: str, rule: str | None, find_entity: Callable[[], Entity], key: str
) -> Entry:
    """Add an entry of a list, and return it; an existing entry with the wanted id is returned unchanged.

    Args:
        store: the lake's tables.
        wanted: who wants it, and why.
        name: the list.
        rule: the only rule that it concerns; None in lists that rules name.
        find_entity: returns what the key is of, or raises an error.
        key: the key, as alerts have it.

    Raises:
        UsageError: the key is not valid or has an entry already, or the day or the reason is not valid.
    """
    for existing in list_entries.read(store, f"entry_id = {value(wanted.entry_id)}"):
        return existing
    require_texts(wanted.author, wanted.reason)
    by = find_entity()
    text, account = list_entries.key_of(by, key, query_columns(store.settings.silver_columns))
    starts_at, ends_at = span(store, wanted.until, wanted.now)
    of_rule = "rule IS NULL" if rule is None else f"rule = {value(rule)}"
    of_key = f"list = {value(name)} AND {of_rule} AND entity = {value(by.name)} AND entity_key = {value(text)}"
    for other in list_entries.read(store, of_key):
        if other.ends_at > starts_at:
            what = f"suppresses {rule} for" if rule else f"of {name} has"
            raise UsageError(
                f"entry {other.entry_id} {what} {by.name} {text} already, until "
                f"{other.ends_at:%Y-%m-%d %H:%M} UTC ({other.author}: {other.reason}): end it first"
            )
    entry = Entry(
        wanted.entry_id,
        name,
        rule,
        by.name,
        text,
        account,
        starts_at,
        ends_at,
        wanted.reason,
        wanted.author,
        wanted.now,
    )
    _insert(store, entry.added)
    return entry


def span(store: Store, until: date, now: datetime) -> tuple[datetime, datetime]:
    """Return the times at which an entry that is added now begins, and at which it ends.

    Raises:
        UsageError: it would end before it begins, or too late.
    """
    ends_at = datetime.combine(until, time(), UTC)
    list_entries.require_end(ends_at, now)
    starts_at = list_entries.first_minute(now, _newest(store, now, ends_at))
    list_entries.require_span(starts_at, ends_at)
    return starts_at, ends_at


def end(store: Store, author: str, entry_id: str, reason: str, now: datetime | None = None) -> Entry:
    """End an entry early, given by its id or a unique prefix of it, and return it.

    Raises:
        UsageError: there is no such entry, it has ended already, or the reason is not valid.
    """
    now = now or datetime.now(UTC)
    require_texts(author, reason)
    entry = _one(store, entry_id)
    ends_at = list_entries.first_minute(now, _newest(store, now, entry.ends_at))
    if entry.ended_by is not None or entry.ends_at <= ends_at:
        raise UsageError(f"entry {entry.entry_id} ends at {entry.ends_at:%Y-%m-%d %H:%M} UTC already")
    _insert(store, entry.ended(ends_at, reason, author, now))
    return _one(store, entry.entry_id)


def _one(store: Store, beginning: str) -> Entry:
    candidates = list_entries.read(store, f"substr(entry_id, 1, {len(beginning)}) = {value(beginning)}")
    if len(candidates) != 1:
        number = len(candidates) or "no"
        raise UsageError(
            f"{number} entries begin with '{beginning}': 'fraudlake rules suppressions' or 'fraudlake lists show NAME' "
            "lists them"
        )
    return candidates[0]


def _entity_of(store: Store, rules: RuleSet, rule: str, name: str | None) -> Entity:
    """Return the entity that a rule groups by.

    Raises:
        UsageError: there is no such rule or entity, the rule is retired, or it groups by another entity.
    """
    rules.version_of(rule)  # raises an error that lists the rules
    if name not in (None, ACCOUNT, *store.settings.entities):
        names = ", ".join((ACCOUNT, *store.settings.entities))
        raise UsageError(f"there is no entity '{name}'; there are {names}")
    entities = list_entries.entities_of(rules, rule, store.settings)
    if not entities:
        raise UsageError(f"{rule} is retired, and raises no alerts")
    if name is None and len(entities) == 1:
        return next(iter(entities.values()))
    if name not in entities:
        raise UsageError(f"{rule} is by {' and '.join(entities)}: give a key of that")
    return entities[str(name)]


def _concerns(entry: Entry) -> tuple[str, str | None]:
    return entry.list, entry.rule


def _evaluated_by(store: Store, rules: RuleSet, name: str, rule: str | None) -> set[str]:
    """Return the entities for which streams evaluate a rule, or rules that name a list."""
    if rule is None:
        lists = ({**version.rule.allowed, **version.rule.watched} for version in rules.evaluated)
        return {of[name] for of in lists if name in of}
    try:
        return {*list_entries.entities_of(RuleSet(rules.evaluated), rule, store.settings)}
    except UsageError:  # a column of the rule is gone
        return set()


def _state(entry: Entry, entities: set[str], now: datetime) -> str:
    if entry.ends_at <= now:
        return "ended" if entry.ended_by else "over"
    if entry.entity not in entities:
        return "without effect"
    return "to begin" if now < entry.starts_at else "active"


def _newest(store: Store, now: datetime, ends_at: datetime) -> datetime | None:
    """Return the newest event time in silver between ``now`` and an end; None if no row is ahead of the clock."""
    silver = tables.SILVER_TRANSACTIONS
    ahead = f"date >= {value(now.date())} AND timestamp >= {value(now)} AND timestamp < {value(ends_at)}"
    rows = store.query(f"SELECT max(timestamp) AS newest FROM {silver.name} WHERE {ahead}", silver)
    newest: datetime | None = rows["newest"][0].as_py()
    return newest


def require_texts(author: str, reason: str) -> None:
    """Refuse to write without an author and a reason of a valid length.

    Raises:
        UsageError: one is missing, or the reason is too long.
    """
    if not author.strip():
        raise UsageError("no author is named: give --author")
    if not reason.strip():
        raise UsageError("give a reason: nothing was written")
    if len(reason) > _LONGEST:
        raise UsageError(f"the reason has {len(reason):,} characters, and at most {_LONGEST:,} are allowed: shorten it")


def _insert(store: Store, row: dict[str, Any]) -> None:
    with store.in_turn():
        store.insert(_TABLE, pa.Table.from_pylist([row], _TABLE.schema), ("entry_id", "event"))
