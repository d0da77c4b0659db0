"""Suppression: separates the alerts that entries of lists suppress from those that are raised.

Suppression does not affect the detector's state: only the row of the alert is written to another table, or to none if
its rule watches lists that it is not on.
"""

from __future__ import annotations

import functools
import operator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql import functions as F

from fraudlake import tables
from fraudlake.detection import list_entries
from fraudlake.lake.missing_version import compute_at
from fraudlake.lake.rows import persisted
from fraudlake.rules.rule_lists import SUPPRESSED, RuleList
from fraudlake.rules.rule_set import RuleVersion
from fraudlake.text.sql_text import literal, one_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pyspark.sql import Column, DataFrame

    from fraudlake.lake import Lake
    from fraudlake.lake.appender import Appender
    from fraudlake.rules.kinds import Rule
    from fraudlake.settings import Settings
    from fraudlake.tables import Table

_VERSION = "list_entries"
"""The name of the version of ``silver_list_entries`` in the record of a commit."""
# An entry that was ended early has two rows; the earlier end counts.
_EARLIEST = (
    "array_min(filter(_entries, one -> one.starts_at <= {time} AND "
    "NOT exists(_entries, other -> other.entry_id = one.entry_id AND other.ends_at <= {time})))"
)
_VALUES = "map<string,string>"
_IS_SHADOW = "is_shadow"


@dataclass(frozen=True)
class BatchEntries:
    """The entries that all commits of a micro-batch use; ``rows`` is None if there are none.

    A micro-batch that is repeated after a crash uses the entries that its first commit recorded.
    """

    rows: DataFrame | None
    version: int | None

    @classmethod
    def of(
        cls, lake: Lake, appender: Appender, batch_id: int, written: Iterable[Table], versions: Iterable[RuleVersion]
    ) -> BatchEntries:
        """Return the entries for a micro-batch that writes the given tables, under versions of rules."""
        table = tables.SILVER_LIST_ENTRIES
        if batch_id == appender.repeated:
            commits = [appender.commit(lake, one, batch_id) for one in written]
            records = [commit.record for commit in commits if commit is not None]
            if records:
                version = records[0].get(_VERSION)
                return cls(None if version is None else _rows_of(lake, version), version)
        if not lake.store.has_rows(table, _condition(version.rule for version in versions)):
            return cls(None, None)
        version = lake.store.version(table)
        return cls(lake.read_version(table, version), version)

    @property
    def record(self) -> dict[str, Any]:
        """The record for the commits of the micro-batch."""
        return {} if self.version is None else {_VERSION: self.version}


def _rows_of(lake: Lake, version: int) -> DataFrame:
    """Return the entries of a table version, or the current ones if the files of that version are deleted."""

    def read(rows: DataFrame) -> DataFrame:
        rows.select("entry_id").distinct().count()
        return rows

    table = tables.SILVER_LIST_ENTRIES
    added = compute_at(lake, table, version, read)
    return lake.read(table) if added is None else added


def read_entries(lake: Lake, rules: Iterable[Rule]) -> DataFrame | None:
    """Return the current entries of rules and of the lists that they name; None if there are none."""
    condition = _condition(rules)
    table = tables.SILVER_LIST_ENTRIES
    return lake.read(table).where(condition) if lake.store.has_rows(table, condition) else None


def _condition(rules: Iterable[Rule]) -> str:
    """Return the condition in SQL of the rows that concern rules."""
    names = []
    lists: set[str] = set()
    for rule in rules:
        names.append(rule.name)
        lists.update(rule.allowed, rule.watched)
    own = f"list = {literal(SUPPRESSED)} AND {one_of('rule', names)}"
    return f"{list_entries.IN_EFFECT} AND ({own} OR {one_of('list', sorted(lists))})"


@contextmanager
def divided(
    raised: Mapping[Table, DataFrame],
    entries: DataFrame | None,
    versions: Sequence[RuleVersion],
    settings: Settings,
    is_batch: bool = True,
) -> Iterator[dict[Table, DataFrame]]:
    """Divide alerts, during the block, into those that are raised and those that entries suppress, by table.

    Args:
        raised: the alerts by table, in the columns of ``silver_alerts``.
        entries: rows of ``silver_list_entries``; None if there are none: then no alert is suppressed.
        versions: the versions of rules that raised them.
        settings: the declared columns and entities.
        is_batch: whether the alerts are those of a micro-batch, so that their keys are few enough to look up each.
    """
    if entries is None or not raised:
        is_raised = ~_is_watching(versions)
        yield {table: rows.where(is_raised) for table, rows in raised.items()}
        return
    of_tables = [
        rows.withColumn(_IS_SHADOW, F.lit(table == tables.SILVER_SHADOW_ALERTS)) for table, rows in raised.items()
    ]
    alerts = functools.reduce(lambda some, others: some.unionByName(others), of_tables)
    with persisted(with_entries(alerts, entries, versions, settings, is_batch=is_batch), eager=False) as with_entry:
        suppressed = with_entry.where("entry_id IS NOT NULL")
        left = with_entry.where("entry_id IS NULL").drop("entry_id")
        by_table = {
            table: left.where(F.col(_IS_SHADOW) == F.lit(table == tables.SILVER_SHADOW_ALERTS)).drop(_IS_SHADOW)
            for table in raised
        }
        yield {**by_table, tables.SILVER_SUPPRESSED_ALERTS: suppressed}


def with_entries(
    alerts: DataFrame,
    entries: DataFrame,
    versions: Sequence[RuleVersion],
    settings: Settings,
    time: str = "timestamp",
    is_batch: bool = False,
) -> DataFrame:
    """Add ``entry_id`` to alerts: the entry that suppresses each, the earliest if there are several, or null.

    An alert of a rule that watches lists is left out if it is on none of them.

    Args:
        alerts: alerts with ``rule, rule_version, account_id, entity, entity_key`` and ``evidence_columns``.
        entries: rows of ``silver_list_entries``.
        versions: the versions of rules that raised them.
        settings: the declared columns and entities.
        time: the column of the event time.
        is_batch: whether the alerts are those of a micro-batch, so that their keys are few enough to look up each.
    """
    uses = [_Use(version, of_list) for version in versions for of_list in list_entries.lists_of(version.rule, settings)]
    keys = {SUPPRESSED: _key(F.col("rule"), F.col("entity"), F.col("entity_key"))}
    for name in sorted({use.of.name for use in uses}):
        keys[name] = F.coalesce(*(F.when(use.is_meant, use.key) for use in uses if use.of.name == name))
    needed = entries.where(list_entries.IN_EFFECT).where(F.col("list").isin(*keys))
    if is_batch:  # a list may have a million entries, which are not worth a shuffle
        texts = F.explode(F.array_compact(F.array(*(key["key"] for key in keys.values()))))
        wanted = alerts.select(texts.alias("entity_key")).distinct()
        needed = needed.join(F.broadcast(wanted), on="entity_key", how="left_semi")
    spans = _spans(needed)
    joined = alerts
    for name, key in keys.items():
        joined = _looked_up(joined, spans.where(F.col("_list") == F.lit(name)), key, time, name)
    allowed = [F.when(use.is_meant, use.entry) for use in uses if not use.of.is_watched]
    first = F.array_min(F.array_compact(F.array(F.col(_entry_of(SUPPRESSED)), *allowed)))
    is_on_watched = [use.is_meant & use.entry.isNotNull() for use in uses if use.of.is_watched]
    is_raised = functools.reduce(operator.or_, is_on_watched, ~_is_watching(versions))
    return joined.where(is_raised).select(*alerts.columns, first["entry_id"].alias("entry_id"))


def history_with_entries(
    raised: DataFrame, entries: DataFrame | None, rules: Sequence[Rule], settings: Settings
) -> DataFrame:
    """Add ``entry_id`` to alerts of history: see :func:`with_entries`.

    Args:
        raised: alerts, :data:`.evidence.COLUMNS`, with the ``rule_version`` that raised each.
        entries: rows of ``silver_list_entries``; None if there are none.
        rules: the versions of one rule, from version 1 on.
        settings: the declared columns and entities.
    """
    versions = [RuleVersion(rule, number, "live") for number, rule in enumerate(rules, 1)]
    named = {"rule": F.lit(rules[0].name), "evidence_columns": F.from_json("columns", f"array<{_VALUES}>")}
    alerts = raised.withColumns(named)
    if entries is None:
        left = alerts.where(~_is_watching(versions)).withColumn("entry_id", F.lit(None).cast("string"))
    else:
        left = with_entries(alerts, entries, versions, settings, "time")
    return left.select(*raised.columns, "entry_id")


def _is_watching(versions: Sequence[RuleVersion]) -> Column:
    """Return whether an alert is of a version that watches lists."""
    return functools.reduce(operator.or_, (_is_of(one) for one in versions if one.rule.watched), F.lit(False))


def _is_of(version: RuleVersion) -> Column:
    return (F.col("rule") == F.lit(version.rule.name)) & (F.col("rule_version") == F.lit(version.version))


class _Use(NamedTuple):
    """A list that a version of a rule names."""

    version: RuleVersion
    of: RuleList

    @property
    def is_meant(self) -> Column:
        """Whether an alert is of the version."""
        return _is_of(self.version)

    @property
    def entry(self) -> Column:
        """The entry of the list that an alert has, after :func:`_looked_up`."""
        return F.col(_entry_of(self.of.name))

    @property
    def key(self) -> Column:
        """The key that is looked up in the list."""
        match self.of.column:
            case None:
                text = F.col("entity_key")
            case "account_id":
                text = F.col("account_id")
            case column:
                # The columns of the rule's own key are no evidence.
                of_key = F.from_json("entity_key", _VALUES)[column]
                text = F.coalesce(F.element_at("evidence_columns", -1)[column], of_key)
        return _key(F.lit(""), F.lit(self.of.of), text)


def _key(rule: Column, of: Column, key: Column) -> Column:
    return F.struct(rule.alias("rule"), of.alias("of"), key.alias("key"))


def _entry_of(name: str) -> str:
    return f"_entry_of_{name}"


def _spans(entries: DataFrame) -> DataFrame:
    """Return the entries of each key of each list: ``_list, _of_key, _entries``."""
    key = _key(F.coalesce("rule", F.lit("")), F.col("entity"), F.col("entity_key"))
    by_key = entries.groupBy(F.col("list").alias("_list"), key.alias("_of_key"))
    return by_key.agg(F.collect_list(F.struct("starts_at", "entry_id", "ends_at")).alias("_entries"))


def _looked_up(alerts: DataFrame, spans: DataFrame, key: Column, time: str, name: str) -> DataFrame:
    """Add the entry of a list that an alert's key has at its time, of several the earliest."""
    joined = alerts.join(spans, key == F.col("_of_key"), how="left")
    return joined.withColumn(_entry_of(name), F.expr(_EARLIEST.format(time=time))).drop(*spans.columns)
