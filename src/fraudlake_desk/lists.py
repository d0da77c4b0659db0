"""Lists: says what is on the lists that rules name, and adds to them, a key at a time or from a file."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass
from datetime import UTC, date, datetime
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc

from fraudlake import tables
from fraudlake.approvals import gate
from fraudlake.approvals.gate import Effect
from fraudlake.approvals.log import Proposal
from fraudlake.detection import list_entries
from fraudlake.entity import ACCOUNT
from fraudlake.errors import UsageError
from fraudlake.keyed.entity_key import Entity, key_text
from fraudlake.review import event_log
from fraudlake.rules import rule_lists
from fraudlake.rules.columns import query_columns
from fraudlake.rules.rule_lists import PROPOSED, SUPPRESSED
from fraudlake.text import json_text, table_file
from fraudlake.text.counts import counted
from fraudlake.text.sql_text import one_of, value
from fraudlake_desk import list_entries as entries_
from fraudlake_desk.list_entries import NewEntry

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fraudlake.approvals.request import Request
    from fraudlake.detection.list_entries import Entry
    from fraudlake.lake.store import Store
    from fraudlake.rules.rule_set import RuleSet
    from fraudlake_desk.list_entries import Listed
    from fraudlake_patterns.expressions import Column

KEY = "key"
"""The column of a file that has the keys, if they are of one column."""
ALONE = 100
"""Most keys that one person adds from a file, if the lake needs two people."""
_TABLE = tables.SILVER_LIST_ENTRIES
_NAMED = f"{list_entries.IN_EFFECT} AND NOT ({entries_.OF_RULES})"
"""The condition in SQL of rows of the lists that rules name."""


@dataclass(frozen=True)
class NamedList:
    """A list that rules name: what it is of, its entries, and the rules."""

    name: str
    of: str
    """What its keys are of: ``account``, an entity or a column."""
    open: int
    """The number of entries that have not ended."""
    ended: int
    suppressed: int
    """The number of alerts that its entries have suppressed."""
    allowed_by: list[str]
    """The rules, live or in the shadow, that raise no alert for what is on it."""
    watched_by: list[str]
    """The rules, live or in the shadow, that raise alerts only for what is on it."""


@dataclass(frozen=True)
class Loaded:
    """What a file has added to a list."""

    list: str
    of: str
    added: int
    present: int
    """Keys that have been on the list already; their entries stay as they are."""
    starts_at: datetime
    ends_at: datetime


def read_all(store: Store, rules: RuleSet, now: datetime | None = None) -> list[NamedList]:
    """Return the lists with entries, and those that evaluated rules name, by name."""
    now = now or datetime.now(UTC)
    of_entry = (
        f"SELECT entry_id, list, entity, min(ends_at) AS ends_at FROM {_TABLE.name} WHERE {_NAMED} "
        "GROUP BY entry_id, list, entity"
    )
    counted = store.query(
        f"SELECT list, entity, count(*) AS entries, sum(CASE WHEN ends_at > {value(now)} THEN 1 ELSE 0 END) AS open "
        f"FROM ({of_entry}) AS of_entry GROUP BY list, entity",
        _TABLE,
    )
    counts = {(row["list"], row["entity"]): row for row in counted.to_pylist()}
    users = _users(rules)
    suppressed = _suppressed(store)
    nothing = {"entries": 0, "open": 0}
    return [
        NamedList(
            name,
            of,
            int(row["open"]),
            int(row["entries"] - row["open"]),
            suppressed[name, of],
            *(sorted(names) for names in users[name, of]),
        )
        for name, of in sorted({*counts, *users})
        for row in [counts.get((name, of), nothing)]
    ]


def read_names(store: Store, rules: RuleSet) -> list[tuple[str, str]]:
    """Return the names of the lists, each with what it is of: those with entries, and those that rules in use name."""
    statement = f"SELECT DISTINCT list, entity FROM {_TABLE.name} WHERE {_NAMED}"
    present = {(row["list"], row["entity"]) for row in store.query(statement, _TABLE).to_pylist()}
    return sorted(present | _users(rules).keys())


def _users(rules: RuleSet) -> dict[tuple[str, str], tuple[set[str], set[str]]]:
    """Return the rules in use that allow, and those that watch, each list and what it is of."""
    users: dict[tuple[str, str], tuple[set[str], set[str]]] = defaultdict(lambda: (set(), set()))
    for version in rules.evaluated:
        for number, lists in enumerate((version.rule.allowed, version.rule.watched)):
            for pair in lists.items():
                users[pair][number].add(version.rule.name)
    return users


def _suppressed(store: Store) -> Counter[tuple[str, str]]:
    """Return how many alerts the entries of each list have suppressed."""
    table = tables.SILVER_SUPPRESSED_ALERTS
    entries = f"SELECT DISTINCT entry_id, list, entity FROM {_TABLE.name}"
    rows = store.query(
        f"SELECT e.list, e.entity, count(*) AS alerts FROM {table.name} AS a JOIN ({entries}) AS e "
        "ON a.entry_id = e.entry_id GROUP BY e.list, e.entity",
        table,
        _TABLE,
    )
    return Counter({(row["list"], row["entity"]): row["alerts"] for row in rows.to_pylist()})


def add(store: Store, rules: RuleSet, wanted: NewEntry, name: str, of: str | None, key: str) -> Entry:
    """Add a key to a list, and return the entry.

    Args:
        store: the lake's tables.
        rules: the rules of the lake.
        wanted: who wants it, and why.
        name: the list; it begins to exist with its first entry.
        of: the kind of key: ``account``, an entity or a column; None: the kind that the list has.
        key: the key, as alerts have it.

    Raises:
        UsageError: the list cannot have such keys, the key is on it already, or the key, the day or the reason is not
            valid.
    """
    return entries_.add(store, wanted, name, None, lambda: find_entity(store, rules, name, of), key)


def entries(
    store: Store, rules: RuleSet, name: str, key: str | None = None, is_all: bool = False, limit: int = 50
) -> list[Listed]:
    """Return the entries of a list, the latest first.

    Args:
        store: the lake's tables.
        rules: the rules of the lake.
        name: the list.
        key: only the entries of this key.
        is_all: whether entries that have ended are included.
        limit: the most entries to return.
    """
    of_key = "" if key is None else f" AND entity_key = {value(key)}"
    is_open = "" if is_all else f"HAVING min(ends_at) > {value(datetime.now(UTC))}"
    rows = store.query(
        f"SELECT entry_id FROM {_TABLE.name} WHERE {_NAMED} AND list = {value(name)}{of_key} "
        f"GROUP BY entry_id {is_open} ORDER BY max(starts_at) DESC, entry_id DESC LIMIT {limit}",
        _TABLE,
    )
    return entries_.listed(store, rules, condition=one_of("entry_id", rows["entry_id"].to_pylist()))


def find_entity(store: Store, rules: RuleSet, name: str, of: str | None) -> Entity:
    """Return what the keys of a list are of, with the columns of the key.

    Raises:
        UsageError: the name is not valid, the list is of something else, or there is no such entity and no such column.
    """
    if name == SUPPRESSED or not re.fullmatch(rule_lists.NAME, name):
        raise UsageError(f"'{name}' cannot be the name of a list: give small letters, digits and _, such as partners")
    entities = sorted({of for one, of in read_names(store, rules) if one == name})
    if of is None:
        if len(entities) != 1:
            are = f"is of {' and of '.join(entities)}" if entities else "is new"
            raise UsageError(f"the list {name} {are}: say what the key is of, such as --of {ACCOUNT}")
        of = entities[0]
    if entities and of not in entities:
        raise UsageError(f"the list {name} is of {' and of '.join(entities)}, and not of {of}: use another list")
    key = rule_lists.key_columns(of, query_columns(store.settings.silver_columns), store.settings.entities)
    return Entity(of, key)


def load(store: Store, rules: RuleSet, wanted: NewEntry, name: str, of: str | None, file: Path) -> Loaded:
    """Add the keys of a file to a list, in one commit; those that are on it already stay as they are.

    Args:
        store: the lake's tables.
        rules: the rules of the lake.
        wanted: who wants it, and why, for keys without a reason of their own.
        name: the list.
        of: what the keys are of; None: what the list is of.
        file: a CSV or parquet file with the column ``key``, or the columns of the key, and perhaps ``reason``.

    Raises:
        UsageError: the file cannot be read, has no such column, an empty key, or a key with two reasons; or as
            :func:`add`.
        WaitingError: the lake needs two people, and the file has more than :data:`ALONE` new keys.
    """
    entries_.require_texts(wanted.author, wanted.reason)
    by = find_entity(store, rules, name, of)
    starts_at, ends_at = entries_.span(store, wanted.until, wanted.now)
    keys = _read_file(file, by, query_columns(store.settings.silver_columns), wanted.reason)
    statement = f"SELECT entity_key FROM ({_on_list(name, by.name, starts_at)}) AS present"
    present = store.query(statement, _TABLE)["entity_key"].cast(pa.string()).combine_chunks()
    new = keys.filter(pc.invert(pc.is_in(keys["entity_key"], present)))
    if len(new):
        common = {"list": name, "entity": by.name, "starts_at": starts_at, "ends_at": ends_at}
        common |= {"author": wanted.author, "at": wanted.now}
        if len(new) > ALONE and gate.keys(store) > 1:
            _propose(store, new, common, wanted)
        _append(store, new, {**common, "event": "added"})
    return Loaded(name, by.name, len(new), len(keys) - len(new), starts_at, ends_at)


def _on_list(name: str, of: str, time: datetime) -> str:
    """Return the query of the keys, ``entity_key``, that are on a list at a time, or come onto it later."""
    return (
        f"SELECT entity_key FROM {_TABLE.name} WHERE {_NAMED} AND list = {value(name)} AND entity = {value(of)} "
        f"GROUP BY entry_id, entity_key HAVING min(ends_at) > {value(time)}"
    )


def _propose(store: Store, keys: pa.Table, common: Mapping[str, Any], wanted: NewEntry) -> None:
    """Write keys that have no effect, and ask a second person for them.

    Raises:
        WaitingError: the request waits.
    """
    arguments = {"list": common["list"], "of": common["entity"], "until": str(wanted.until)}
    content = [*arguments.values(), keys.sort_by("entity_key").to_pylist()]
    proposal = sha256(json_text.dumps(content).encode()).hexdigest()[:32]
    if not store.has_rows(_TABLE, _is_of(proposal)):
        ids = pa.array([f"{proposal}-{number}" for number in range(len(keys))], pa.string())
        _append(store, keys, {**common, "event": PROPOSED}, ids)
    subject = f"{counted(len(keys), 'key')} of the list {common['list']} until {wanted.until}"
    arguments["proposal"] = proposal
    change = Proposal("list", subject, {"keys": 0}, {"keys": len(keys)}, arguments)
    gate.require(store, change, wanted.author, wanted.reason)


def _is_of(proposal: str) -> str:
    return f"event = {value(PROPOSED)} AND substr(entry_id, 1, {len(proposal)}) = {value(proposal)}"


def _state(store: Store, request: Request) -> dict[str, Any]:
    """Return how many of the proposed keys are on the list."""
    arguments = request.arguments
    present = _on_list(arguments["list"], arguments["of"], datetime.now(UTC))
    statement = (
        f"SELECT count(DISTINCT entity_key) AS keys FROM {_TABLE.name} WHERE {_is_of(arguments['proposal'])} "
        f"AND entity_key IN ({present})"
    )
    return {"keys": int(store.query(statement, _TABLE)["keys"][0].as_py())}


def _carry_out(store: Store, request: Request) -> None:
    """Add the proposed keys to the list, unless that was done before."""
    if _state(store, request) == request.after:
        return
    now = datetime.now(UTC)
    arguments = request.arguments
    starts_at, ends_at = entries_.span(store, date.fromisoformat(arguments["until"]), now)
    common = {
        "list": arguments["list"],
        "entity": arguments["of"],
        "starts_at": starts_at,
        "ends_at": ends_at,
        "at": now,
    }
    statement = f"SELECT entity_key, account_id, reason FROM {_TABLE.name} WHERE {_is_of(arguments['proposal'])}"
    _append(store, store.query(statement, _TABLE), {**common, "event": "added", "author": request.event.person})


EFFECT = Effect(_state, _carry_out)


def _append(store: Store, keys: pa.Table, common: Mapping[str, Any], ids: pa.Array | None = None) -> None:
    """Append an entry for each key; all have the same values in the other columns."""
    types = {field.name: field.type for field in _TABLE.schema}
    if ids is None:
        ids = pa.array([uuid4().hex for _ in range(len(keys))], pa.string())
    others = {name: pa.repeat(pa.scalar(constant, types[name]), len(keys)) for name, constant in common.items()}
    rows = pa.table({"entry_id": ids, **others, **{name: keys[name] for name in keys.column_names}})
    with store.in_turn():
        store.append(_TABLE, rows)


def _read_file(file: Path, by: Entity, columns: Mapping[str, Column], reason: str) -> pa.Table:
    """Return ``entity_key, account_id, reason`` of a file, each key once."""
    rows = table_file.read(file)
    reasons = _reasons(file, rows, reason)
    values = _values(file, rows, by, columns)
    pairs = pa.table({"entity_key": _key_texts(values), "account_id": _accounts(values), "reason": reasons})
    once = pairs.group_by("entity_key").aggregate([("account_id", "min"), ("reason", "min"), ("reason", "max")])
    torn = once.filter(pc.not_equal(once["reason_min"], once["reason_max"])).slice(0, 1).to_pylist()
    for row in torn:
        raise UsageError(
            f"{file}: the key {row['entity_key']} is there twice with two reasons, '{row['reason_min']}' and "
            f"'{row['reason_max']}': keep one; nothing was written"
        )
    return pa.table(
        {"entity_key": once["entity_key"], "account_id": once["account_id_min"], "reason": once["reason_min"]}
    )


def _values(file: Path, rows: pa.Table, by: Entity, columns: Mapping[str, Column]) -> dict[str, pa.Array]:
    """Return the columns of the key of each row, in the types of silver's columns."""
    is_plain = len(by.columns) == 1 and KEY in rows.column_names
    values = {}
    for column in by.columns:
        name = KEY if is_plain else column
        if name not in rows.column_names:
            wanted = f"'{KEY}' or '{name}'" if len(by.columns) == 1 else f"'{name}'"
            fields = ", ".join(rows.column_names)
            raise UsageError(f"{file}: has no column {wanted} for the key of {by.name}; it has {fields}")
        text = table_file.texts(file, rows, name)
        empty = pc.index(pc.equal(text, ""), True).as_py()
        if empty >= 0:
            raise UsageError(f"{file}: row {empty + 1} has no {name}: nothing was written")
        values[column] = text if columns[column].type.name == "STRING" else _typed(file, columns[column], text)
    return values


def _typed(file: Path, column: Column, texts: pa.Array) -> pa.Array:
    try:
        return pa.array([list_entries.key_value(column, text) for text in texts.to_pylist()])
    except UsageError as error:
        raise UsageError(f"{file}: {error}") from None


def _reasons(file: Path, rows: pa.Table, reason: str) -> pa.Array:
    """Return the reason of each row, its own or else the common one."""
    if "reason" not in rows.column_names:
        return pa.repeat(reason, len(rows))
    own = table_file.texts(file, rows, "reason")
    reasons = pc.if_else(pc.equal(own, ""), reason, own)
    longest = event_log.LONGEST["reason"]
    if (pc.max(pc.utf8_length(reasons)).as_py() or 0) > longest:
        raise UsageError(f"{file}: a reason has more than {longest:,} characters: shorten it; nothing was written")
    return reasons


def _key_texts(values: Mapping[str, pa.Array]) -> pa.Array:
    """Return each key as a text."""
    first = next(iter(values.values()))
    if len(values) == 1 and pa.types.is_string(first.type):
        return first
    return pa.array([key_text(row) for row in pa.table(values).to_pylist()], pa.string())


def _accounts(values: Mapping[str, pa.Array]) -> pa.Array:
    """Return the account of each key; null if it has none."""
    length = len(next(iter(values.values())))
    return values.get("account_id", pa.nulls(length, pa.string()))
