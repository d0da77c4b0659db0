"""Suppression: alerts are divided into those that are raised, and those that entries of a list suppress.

The detector's state goes on as if nothing was suppressed: only the row of the alert is written elsewhere.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from fraudlake import tables
from fraudlake.detection.list_entries import SUPPRESSED
from fraudlake.lake.missing_version import of_version
from fraudlake.sql_text import literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyspark.sql import DataFrame

    from fraudlake.lake import Lake
    from fraudlake.lake.appender import Appender
    from fraudlake.tables import Table

_VERSION = "list_entries"
"""What the record of a commit calls the version of ``silver_list_entries``."""
# An entry that was ended early has two rows; the end of either counts.
_EARLIEST = (
    "array_min(filter(_entries, one -> one.starts_at <= {time} AND "
    "NOT exists(_entries, other -> other.entry_id = one.entry_id AND other.ends_at <= {time}))).entry_id"
)


@dataclass(frozen=True)
class BatchEntries:
    """The entries that all commits of a micro-batch go by; ``rows`` is None if there are none.

    One that is repeated after a crash goes by those that its first commit recorded.
    """

    rows: DataFrame | None
    version: int | None

    @classmethod
    def of(cls, lake: Lake, appender: Appender, batch_id: int, written: Iterable[Table]) -> BatchEntries:
        """Return the entries of a micro-batch that writes some tables."""
        table = tables.SILVER_LIST_ENTRIES
        if batch_id == appender.repeated:
            commits = [appender.commit(lake, one, batch_id) for one in written]
            records = [commit.record for commit in commits if commit is not None]
            if records:
                version = records[0].get(_VERSION)
                return cls(None if version is None else _rows_of(lake, version), version)
        if not lake.has_rows(table):
            return cls(None, None)
        version = lake.version(table)
        return cls(lake.read_version(table, version), version)

    @property
    def record(self) -> dict[str, Any]:
        """What the commits of the micro-batch record."""
        return {} if self.version is None else {_VERSION: self.version}


def _rows_of(lake: Lake, version: int) -> DataFrame:
    """Return the entries of a version, or those of now if its files are gone."""

    def read(rows: DataFrame) -> DataFrame:
        rows.select("entry_id").distinct().count()
        return rows

    table = tables.SILVER_LIST_ENTRIES
    found = of_version(lake, table, version, read)
    return lake.read(table) if found is None else found


def of_lake(lake: Lake, rule: str | None = None) -> DataFrame | None:
    """Return the entries, or those of a rule, as they are now; None if there are none."""
    condition = "" if rule is None else f"rule = {literal(rule)}"
    return lake.read(tables.SILVER_LIST_ENTRIES) if lake.has_rows(tables.SILVER_LIST_ENTRIES, condition) else None


def divided(raised: Mapping[Table, DataFrame], entries: DataFrame | None) -> dict[Table, DataFrame]:
    """Return the rows of each table of alerts without those that entries suppress, and ``silver_suppressed_alerts``.

    Args:
        raised: the alerts by table, in the columns of ``silver_alerts``.
        entries: rows of ``silver_list_entries``; None if there are none, and then the alerts are as they are.
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
    """Return alerts with ``entry_id``: the entry that suppresses them, otherwise null; of several the earliest.

    Args:
        alerts: alerts with ``entity, entity_key``, and with ``rule`` if they are not all of one.
        entries: rows of ``silver_list_entries``.
        time: the column of the event time.
        rule: the rule that all alerts are of.
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
