"""Suppression: separates the alerts that list entries suppress from those that are raised.

Suppression does not affect the detector's state: only the row of the alert is written to another table.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from fraudlake import tables
from fraudlake.detection.list_entries import SUPPRESSED
from fraudlake.lake.missing_version import of_version
from fraudlake.text.sql_text import literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyspark.sql import DataFrame

    from fraudlake.lake import Lake
    from fraudlake.lake.appender import Appender
    from fraudlake.tables import Table

_VERSION = "list_entries"
"""The name of the version of ``silver_list_entries`` in the record of a commit."""
# An entry that was ended early has two rows; the earlier end counts.
_EARLIEST = (
    "array_min(filter(_entries, one -> one.starts_at <= {time} AND "
    "NOT exists(_entries, other -> other.entry_id = one.entry_id AND other.ends_at <= {time}))).entry_id"
)


@dataclass(frozen=True)
class BatchEntries:
    """The entries that all commits of a micro-batch use; ``rows`` is None if there are none.

    A micro-batch that is repeated after a crash uses the entries that its first commit recorded.
    """

    rows: DataFrame | None
    version: int | None

    @classmethod
    def of(cls, lake: Lake, appender: Appender, batch_id: int, written: Iterable[Table]) -> BatchEntries:
        """Return the entries for a micro-batch that writes the given tables."""
        table = tables.SILVER_LIST_ENTRIES
        if batch_id == appender.repeated:
            commits = [appender.commit(lake, one, batch_id) for one in written]
            records = [commit.record for commit in commits if commit is not None]
            if records:
                version = records[0].get(_VERSION)
                return cls(None if version is None else _rows_of(lake, version), version)
        if not lake.store.has_rows(table):
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
    added = of_version(lake, table, version, read)
    return lake.read(table) if added is None else added


def read_entries(lake: Lake, rule: str | None = None) -> DataFrame | None:
    """Return the current entries, of all rules or of one; None if there are none."""
    condition = "true" if rule is None else f"rule = {literal(rule)}"
    return lake.read(tables.SILVER_LIST_ENTRIES) if lake.store.has_rows(tables.SILVER_LIST_ENTRIES, condition) else None


def divided(raised: Mapping[Table, DataFrame], entries: DataFrame | None) -> dict[Table, DataFrame]:
    """Return the rows of each table of alerts without those that entries suppress, and ``silver_suppressed_alerts``.

    Args:
        raised: the alerts by table, in the columns of ``silver_alerts``.
        entries: rows of ``silver_list_entries``; None if there are none: then the alerts are returned unchanged.
    """
    if entries is None:
        return dict(raised)
    with_entry = {table: marked(rows, entries) for table, rows in raised.items()}
    suppressed = [
        rows.where("entry_id IS NOT NULL").withColumn("is_shadow", F.lit(table == tables.SILVER_SHADOW_ALERTS))
        for table, rows in with_entry.items()
    ]
    raised = {table: rows.where("entry_id IS NULL").drop("entry_id") for table, rows in with_entry.items()}
    both = functools.reduce(lambda some, others: some.unionByName(others), suppressed)
    return {**raised, tables.SILVER_SUPPRESSED_ALERTS: both}


def marked(alerts: DataFrame, entries: DataFrame, time: str = "timestamp", rule: str | None = None) -> DataFrame:
    """Add ``entry_id`` to alerts: the entry that suppresses each, the earliest if there are several, or null.

    Args:
        alerts: alerts with ``entity, entity_key``, and with ``rule`` unless the argument ``rule`` is given.
        entries: rows of ``silver_list_entries``.
        time: the column of the event time.
        rule: the rule of all alerts.
    """
    own = F.col("rule") if rule is None else F.lit(rule)
    of_key = (
        entries.where(F.col("list") == F.lit(SUPPRESSED))
        .groupBy(F.col("rule").alias("_rule"), F.col("entity").alias("_entity"), F.col("entity_key").alias("_key"))
        .agg(F.collect_list(F.struct("starts_at", "entry_id", "ends_at")).alias("_entries"))
    )
    is_of_key = (own == F.col("_rule")) & (F.col("entity") == F.col("_entity")) & (F.col("entity_key") == F.col("_key"))
    joined = alerts.join(of_key, is_of_key, how="left")
    return joined.select(*alerts.columns, F.expr(_EARLIEST.format(time=time)).alias("entry_id"))
