"""Definition: the settings that define a lake, recorded in ``silver_definition`` for every command that opens it.

The table has the settings of :data:`fraudlake.settings.DEFINITION`. Payload, columns, currency and clustering are
recorded when the tables are made, the others by the first command that gives them, and no later than the first start of
a stream with state. Until then the command's own settings count. A command may omit recorded settings. It is refused if
it gives other values, unless it makes a :class:`Change`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from fraudlake import tables
from fraudlake.errors import FraudlakeError, UsageError
from fraudlake.lake import change_log
from fraudlake.settings import DEFINITION, DEFINITION_TYPES, Settings
from fraudlake.settings.columns import DeclaredColumn
from fraudlake.settings.features import require_declared, require_kept, typed
from fraudlake.settings.payload import complete
from fraudlake.text import json_text

if TYPE_CHECKING:
    from fraudlake.lake.lake import Lake

_APPLICATION = "fraudlake definition"
"""Delta's ``txnAppId`` of changes: if two are made at once, Delta accepts one of them."""
_OF_TABLES = ("payload", "columns", "currency", "clustering")
"""Settings that are recorded when the tables are created."""
_DECLARING = (tables.BRONZE_TRANSACTIONS, tables.SILVER_TRANSACTIONS, tables.SILVER_QUARANTINE)


@dataclass(frozen=True)
class Change:
    """A declared change: the given settings become the lake's."""

    author: str
    reason: str | None = None


@dataclass(frozen=True)
class Recorded:
    """The recorded definition of a lake: values by setting, and the number of the latest change (0: none)."""

    values: dict[str, Any]
    change: int

    @classmethod
    def of(cls, rows: Iterable[Mapping[str, Any]]) -> Recorded:
        """Read the rows of ``silver_definition``; settings that this version does not have are ignored."""
        ordered = sorted(rows, key=lambda row: int(row["change"]))
        latest = {row["setting"]: row["value"] for row in ordered}
        values = {name: DEFINITION_TYPES[name].validate_json(latest[name]) for name in DEFINITION if name in latest}
        return cls(values, max((row["change"] for row in ordered), default=0))


def read(lake: Lake) -> Recorded:
    """Return the recorded definition of a lake."""
    is_there = lake.has(tables.SILVER_DEFINITION)
    return Recorded.of(
        lake.store.query(f"SELECT * FROM {tables.SILVER_DEFINITION.name}", tables.SILVER_DEFINITION).to_pylist()
        if is_there
        else ()
    )


def resolve(lake: Lake, recorded: Recorded, change: Change | None = None) -> tuple[Settings, dict[str, Any]]:
    """Return the settings of a lake that is being opened, completed by its definition, and the values to record.

    Args:
        lake: the lake, with the given settings.
        recorded: its recorded definition.
        change: if given, the lake adopts the given settings that differ.

    Raises:
        UsageError: the settings contradict the lake, or the lake cannot make a change. Nothing was written.
    """
    settings = lake.settings
    missing = [name for name in DEFINITION if name not in recorded.values]
    definition = dict(recorded.values)
    different = [
        name for name in settings.origins if name in definition and definition[name] != getattr(settings, name)
    ]
    if change is None:
        for name in different:
            raise UsageError(_contradiction(lake, name, definition[name]))
    else:
        for name in different:
            _require_changeable(lake, name, definition[name])
        definition |= {name: getattr(settings, name) for name in different}
    settled = settings.defined(definition)
    require_known(settled, lake.name)
    if {"columns", "currency"}.intersection([*missing, *different]):
        for table in filter(lake.has, _DECLARING):
            tables.require_types(tables.with_declared(table, settled.silver_columns), lake.store.column_types(table))
    names = {*_OF_TABLES, *settings.origins, *definition}
    values = {name: getattr(settled, name) for name in DEFINITION if name in names}
    if "features" in settings.origins and ("features" in missing or "features" in different):
        require_kept(settled.features, settings.row_retention)
    predictions = tables.GOLD_FRAUD_PREDICTIONS
    if "features" in different and lake.has(predictions):
        with_features = tables.with_declared(predictions, {}, typed(settled.features, settled.silver_columns))
        tables.require_types(with_features, lake.store.column_types(predictions), "features")
    return settled, {name: value for name, value in values.items() if name in missing or name in different}


def write(lake: Lake, values: Mapping[str, Any], recorded: Recorded, change: Change | None = None) -> bool:
    """Record values, in one commit; return False if another process made a change at the same time."""
    author = change or Change("settings")
    row = {"author": author.author, "reason": author.reason, "changed_at": datetime.now(UTC)}
    texts = {name: DEFINITION_TYPES[name].dump_json(value, by_alias=True).decode() for name, value in values.items()}
    rows = [{"change": recorded.change + 1, "setting": name, "value": text, **row} for name, text in texts.items()]
    return change_log.write(lake, tables.SILVER_DEFINITION, _APPLICATION, rows)


def record_all(lake: Lake) -> None:
    """Record settings that are not recorded yet, before a stream's state depends on them.

    Raises:
        FraudlakeError: another command has recorded other values since this one opened the lake.
    """
    recorded = read(lake)
    values = {name: getattr(lake.settings, name) for name in DEFINITION}
    is_same = all(values[name] == value for name, value in recorded.values.items())
    missing = {name: value for name, value in values.items() if name not in recorded.values}
    if not is_same or (missing and not write(lake, missing, recorded)):
        raise FraudlakeError(f"another command has changed the definition of {lake.name} meanwhile: run this one again")


def differences(before: Settings, after: Settings) -> dict[str, str]:
    """Describe the differences between two definitions, by setting."""
    pairs = {name: (getattr(before, name), getattr(after, name)) for name in DEFINITION}
    return {name: _difference(name, *pair) for name, pair in pairs.items() if pair[0] != pair[1]}


def require_known(settings: Settings, name_of_lake: str) -> None:
    """Refuse a currency, entities and features that refer to columns or entities that the lake does not have.

    Raises:
        UsageError: the currency is in, or an entity is keyed by, an undeclared column, or a feature does not suit
            columns and entities.
    """
    currency = None if settings.currency is None else settings.currency.column
    if currency is not None and (currency not in settings.columns or settings.columns[currency].type != "string"):
        raise UsageError(
            f"currency: {currency} is not a text column of {name_of_lake}: declare it in [columns] as string, or name "
            "another column"
        )
    silver_columns = ("account_id", *settings.columns)
    for name, columns in settings.entities.items():
        for column in columns:
            if column not in silver_columns:
                raise UsageError(
                    f"entities: {name} is keyed by {column}, which is not a column of {name_of_lake}; declared are "
                    f"{', '.join(silver_columns)}: declare it in [columns], or leave {name} out"
                )
    require_declared(settings.features, settings.silver_columns, settings.entities, settings.flink_delay)


def _require_changeable(lake: Lake, name: str, recorded: Any) -> None:
    """Refuse a change to which the tables or the state of streams cannot adapt."""
    value = getattr(lake.settings, name)
    if name == "clustering" and lake.has(tables.SILVER_TRANSACTIONS):
        raise UsageError(
            f"clustering: the tables of {lake.name} were made with {recorded}, and keep it: create another lake"
        )
    if name == "approvals" and value < recorded:
        raise UsageError(
            f"approvals: {lake.name} needs {recorded} people, who must agree to that: ask with "
            f"'fraudlake define --approvals {value} --yes'"
        )
    if name == "currency" and recorded is not None and (value is None or value.base != recorded.base):
        raise UsageError(
            f"currency: rates and amounts of {lake.name} are in {recorded.base}, and stay so: create another lake"
        )
    for entity in recorded if name == "entities" else ():
        if value.get(entity, recorded[entity]) != recorded[entity]:
            raise UsageError(
                f"entities: {entity} is keyed by {', '.join(recorded[entity])} in {lake.name}, which states of streams "
                "depend on: declare the new key under another name"
            )
    for folder in sorted(lake.checkpoints.glob("*")):
        fixed = lake.checkpoint(folder.name).notes.fixed
        lake.checkpoint(folder.name).notes.require_fixed({name: value} if name in fixed else {})


def _contradiction(lake: Lake, name: str, recorded: Any) -> str:
    difference = _difference(name, recorded, getattr(lake.settings, name))
    return (
        f"{lake.settings.origins[name]} contradicts {lake.name} in {name} ({difference}): leave it out, or change the "
        "lake with 'fraudlake define'"
    )


def _difference(name: str, before: Any, after: Any) -> str:
    if name == "entities":
        return _difference_of(before, after, " + ".join)
    if name == "features":
        old, new = ({feature.name: feature for feature in features} for features in (before, after))
        return _difference_of(old, new, lambda feature: json_text.dumps(feature.model_dump(mode="json")))
    if name == "payload":
        return _difference_of(complete(before), complete(after), lambda field: field.words)
    if name != "columns":
        was, now = (json.loads(DEFINITION_TYPES[name].dump_json(value)) for value in (before, after))
        return f"{_plain(now)} instead of {_plain(was)}"
    return _difference_of(before, after, _words)


def _plain(value: Any) -> str:
    """Return a value as the settings have it."""
    return "none" if value is None else json_text.dumps(value) if isinstance(value, dict) else str(value)


def _difference_of(before: Mapping[str, Any], after: Mapping[str, Any], words: Callable[[Any], str]) -> str:
    """Describe the differences between two sets of declarations by name."""
    parts = [f"without {name}" for name in before if name not in after]
    parts += [f"{name} is new" for name in after if name not in before]
    parts += [
        f"{name} is {words(after[name])} instead of {words(before[name])}"
        for name in before
        if name in after and before[name] != after[name]
    ]
    return "; ".join(parts)


def _words(column: DeclaredColumn) -> str:
    return f"{column.type} from '{column.field}'{'' if column.nullable else ', never null'}"
