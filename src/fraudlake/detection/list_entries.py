"""List entries: reads entries from ``silver_list_entries``, which say for what keys and when rules raise alerts.

An entry applies to payments by event time, and only to those after it was written: it begins after the clock, and after
the newest payment that silver has at that time. It ends early in the same way. So in a replay or a backtest an entry
has the same effect as in the stream, in whatever order the rows arrived. The exceptions are payments that arrive
in between with an event time more than :data:`MARGIN` ahead of the clock.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from fraudlake import tables
from fraudlake.detection import rule_entity
from fraudlake.entity import ACCOUNT
from fraudlake.errors import UsageError
from fraudlake.keyed.entity_key import THE_ACCOUNT, Entity, key_text
from fraudlake.rules.columns import query_columns
from fraudlake.rules.rule_lists import PROPOSED, SUPPRESSED, RuleList
from fraudlake.text import json_text
from fraudlake.text.sql_text import one_of, value

if TYPE_CHECKING:
    from fraudlake.lake.store import Store
    from fraudlake.rules.kinds import Rule
    from fraudlake.rules.rule_set import RuleSet
    from fraudlake.settings import Settings
    from fraudlake_patterns.expressions import Column

MARGIN = timedelta(minutes=1)
"""Time allowed for writing an entry to the table, and for differences between the clocks of machines."""
LONGEST = timedelta(days=366)
"""The longest time from now to the end of an entry."""
IN_EFFECT = f"event <> {value(PROPOSED)}"
"""The condition in SQL of rows that are more than proposed."""
_FEW_KEYS = 1_000
"""The most keys that a query names."""
_MINUTE = timedelta(minutes=1)
_WHOLE = re.compile(r"[+-]?\d{1,19}", re.ASCII)
_Applying = tuple[datetime, str] | None
"""The start and the id of an entry that applies to an alert; None if none does."""


@dataclass(frozen=True)
class Entry:
    """An entry of a list; it applies to event times from ``starts_at`` to before ``ends_at``.

    ``rule`` is the only rule that an entry of the list ``suppressed`` concerns; None in the lists that rules name.
    """

    entry_id: str
    list: str
    rule: str | None
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
        row = {field.name: getattr(self, field.name) for field in fields(self)}
        return {"event": "added"} | {name: content for name, content in row.items() if not name.startswith("ended_")}

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
    return as_entries(read_rows(store, condition).to_pylist())


def read_rows(store: Store, condition: str) -> pa.Table:
    """Return the rows of entries that fulfil a condition in SQL, without those that are only proposed."""
    table = tables.SILVER_LIST_ENTRIES
    return store.query(f"SELECT * FROM {table.name} WHERE {IN_EFFECT} AND ({condition})", table)


def lists_of(rule: Rule, settings: Settings) -> tuple[RuleList, ...]:
    """Return the lists that a rule names.

    Raises:
        UsageError: the rule or one of its lists does not fit the columns.
    """
    if not (rule.allowed or rule.watched):
        return ()
    columns = query_columns(settings.silver_columns)
    by = THE_ACCOUNT.columns
    if rule.looks_at == "transactions":
        by = tuple(rule.compile(columns, settings.entities).partition_by)
    return rule.resolve_lists(columns, settings.entities, by)


def require_same_keys(store: Store, rules: Iterable[Rule]) -> None:
    """Refuse rules that name a list as one of other keys than its entries have: they would never find an entry.

    Raises:
        UsageError: a rule does.
    """
    named = {(name, of): rule.name for rule in rules for name, of in {**rule.allowed, **rule.watched}.items()}
    if not named:
        return
    table = tables.SILVER_LIST_ENTRIES
    of_lists = f"{IN_EFFECT} AND {one_of('list', sorted({name for name, _ in named}))}"
    entities: dict[str, set[str]] = defaultdict(set)
    for row in store.query(f"SELECT DISTINCT list, entity FROM {table.name} WHERE {of_lists}", table).to_pylist():
        entities[row["list"]].add(row["entity"])
    for (name, of), rule in named.items():
        if name in entities and of not in entities[name]:
            raise UsageError(
                f"{rule}: the list {name} is of {' and of '.join(sorted(entities[name]))}, and not of {of}: "
                "correct the rule, or name another list"
            )


def with_entries(alerts: pa.Table, store: Store, rule: Rule) -> pa.Table:
    """Add ``entry_id`` to alerts without Spark: see :func:`fraudlake.detection.suppression.with_entries`.

    Args:
        alerts: alerts of the rule, :data:`fraudlake.detection.evidence.COLUMNS`.
        store: the lake's tables.
        rule: the rule.
    """
    own = zip(alerts["entity"].to_pylist(), alerts["entity_key"].to_pylist(), strict=True)
    keys: dict[tuple[str, str | None], list[tuple[str, str | None]]] = {(SUPPRESSED, rule.name): [*own]}
    for one in lists_of(rule, store.settings):
        keys[one.name, None] = [(one.of, key) for key in _keys(alerts, one)]
    wanted = {key for of_list in keys.values() for _, key in of_list if key is not None}
    entries_by_key: dict[tuple[Any, ...], list[Entry]] = defaultdict(list)
    for entry in sorted(_read_keys(store, rule, wanted), key=lambda entry: (entry.starts_at, entry.entry_id)):
        entries_by_key[entry.list, entry.rule, entry.entity, entry.entity_key].append(entry)
    times = alerts["time"].to_pylist()
    # The entry that each alert has in each list.
    allowed: list[list[_Applying]] = []
    watched: list[list[_Applying]] = []
    for name, of_list in keys.items():
        side = watched if name[0] in rule.watched else allowed
        side.append(
            [_applying(entries_by_key.get((*name, *key), ()), time) for key, time in zip(of_list, times, strict=True)]
        )
    first = [min(filter(None, of_alert), default=(None, None))[1] for of_alert in zip(*allowed, strict=True)]
    with_entry = alerts.append_column("entry_id", pa.array(first, pa.string()))
    if not rule.watched:
        return with_entry
    return with_entry.filter(pa.array([any(of_alert) for of_alert in zip(*watched, strict=True)], pa.bool_()))


def _applying(entries: Iterable[Entry], time: datetime) -> _Applying:
    """Return the start and the id of the first entry that applies at a time; None if there is none."""
    return next(((one.starts_at, one.entry_id) for one in entries if one.starts_at <= time < one.ends_at), None)


def _keys(alerts: pa.Table, of_list: RuleList) -> list[str | None]:
    """Return the key of each alert that is looked up in a list."""
    match of_list.column:
        case None | "account_id":
            keys: list[str | None] = alerts[of_list.column or "entity_key"].to_pylist()
            return keys
        case column:
            texts = zip(alerts["columns"].to_pylist(), alerts["entity_key"].to_pylist(), strict=True)
            return [_key_in(last, key, column) for last, key in texts]


def _key_in(columns: str | None, entity_key: str, column: str) -> str | None:
    """Return a column of an alert's last transaction; the columns of the rule's own key are no evidence."""
    last = json.loads(columns)[-1] if columns else {}
    content = last[column] if column in last else json.loads(entity_key).get(column)
    return None if content is None else key_text({column: content})


def _read_keys(store: Store, rule: Rule, keys: Collection[str]) -> list[Entry]:
    """Return the entries of some keys that a rule heeds."""
    named = one_of("list", sorted({*rule.allowed, *rule.watched}))
    condition = f"(list = {value(SUPPRESSED)} AND rule = {value(rule.name)} OR {named})"
    if len(keys) <= _FEW_KEYS:
        return read(store, f"{condition} AND {one_of('entity_key', sorted(keys))}")
    rows = read_rows(store, condition)
    return as_entries(rows.filter(pc.is_in(rows["entity_key"], pa.array([*keys], pa.string()))).to_pylist())


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
        compiled = rule.compile(query_columns(settings.silver_columns), settings.entities)
        by = rule_entity.find_entity(rule, compiled.partition_by, settings)
        by_name[by.name] = by
    return by_name


def key_of(by: Entity, key: str, columns: Mapping[str, Column]) -> tuple[str, str | None]:
    """Return a key in the form that alerts use, and the account in it, if any.

    Args:
        by: the entity.
        key: the key; a JSON object if it has several columns.
        columns: the columns of silver by name.

    Raises:
        UsageError: it is not a key of the entity.
    """
    if not key.strip():
        raise UsageError(f"name the key of the {by.name}: nothing was written")
    values: Any = {by.columns[0]: key}
    if len(by.columns) > 1:
        try:
            values = json.loads(key)
        except ValueError:
            values = None
        if not isinstance(values, dict) or values.keys() != set(by.columns):
            example = json_text.dumps(dict.fromkeys(by.columns, "…"), ensure_ascii=False)
            raise UsageError(f"a key of {by.name} has {len(by.columns)} columns: give them as {example}")
    typed = {name: key_value(columns[name], values[name]) for name in by.columns}
    return key_text(typed), typed.get("account_id")


def key_value(column: Column, content: Any) -> Any:
    """Return a value of a key in the type of its column, as silver has it: the text ``007`` is the whole number 7.

    Raises:
        UsageError: the column cannot have this value.
    """
    text = content if isinstance(content, str) else json_text.dumps(content, ensure_ascii=False)
    plain = text.strip()
    match column.type.name:
        case "BIGINT":
            if _WHOLE.fullmatch(plain) and -(2**63) <= int(plain) < 2**63:
                return int(plain)
            kind = "a whole number"
        case "BOOLEAN":
            if plain.lower() in ("true", "false"):
                return plain.lower() == "true"
            kind = "true or false"
        case "STRING":
            if content is not None and not isinstance(content, dict | list):
                return text
            kind = "a text"
        case _:
            return content
    raise UsageError(f"{column.name} is {kind}, and not {text}: nothing was written")


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
