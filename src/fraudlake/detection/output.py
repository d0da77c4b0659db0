"""Output: the columns of what the detector returns, which are alerts and rows that came too late."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from fraudlake.keyed.entity_key import Entity
    from fraudlake.rules.rule_set import RuleVersion

OUTPUT = pa.schema(
    [
        ("rule", pa.string()),  # null for a row that was too late, as the next two
        ("rule_version", pa.int64()),
        ("is_shadow", pa.bool_()),
        ("account_id", pa.string()),
        ("transaction_id", pa.string()),
        ("time", pa.int64()),
        ("amount", pa.float64()),
        ("label", pa.bool_()),
        ("source", pa.string()),
        ("position", pa.int64()),
        ("kind", pa.string()),  # null for a row that was too late, as all that follows
        ("first_transaction_id", pa.string()),
        ("evidence", pa.string()),  # JSON
        ("columns", pa.string()),  # JSON; null if the rule reads no further columns
        ("measures", pa.string()),  # JSON
        ("explanation", pa.string()),
        ("entity", pa.string()),
        ("entity_key", pa.string()),
    ]
)


def alert_rows(by: Entity, version: RuleVersion, alerts: pa.Table) -> pa.Table:
    """Return the alerts of a rule, which :func:`evidence.described` returns, as output."""
    of_rule = {
        "rule": version.rule.name,
        "rule_version": version.version,
        "is_shadow": version.is_shadow,
        "kind": version.rule.kind,
        "entity": by.name,
    }
    columns = {
        name: pa.repeat(pa.scalar(value, OUTPUT.field(name).type), len(alerts)) for name, value in of_rule.items()
    }
    return _table(len(alerts), **columns, **{name: alerts[name] for name in alerts.column_names})


def late_rows(rows: pa.Table) -> pa.Table:
    """Return rows that came too late as output."""
    columns = {name: rows[name] for name in ("account_id", "time", "amount", "label", "position")}
    return _table(len(rows), **columns, source=rows["source"].cast(pa.string()))


def _table(rows: int, **columns: pa.Array) -> pa.Table:
    """Make a table of :data:`OUTPUT` from some of its columns; the others are null."""
    return pa.table([columns.get(field.name, pa.nulls(rows, field.type)) for field in OUTPUT], schema=OUTPUT)


def late(detector_output: DataFrame) -> DataFrame:
    """Return the rows too late for event-time order: ``dt, accountId, amount, alert, source, position, reasons``."""
    return detector_output.where(F.col("rule").isNull()).select(
        F.timestamp_micros("time").alias("dt"),
        F.col("account_id").alias("accountId"),
        "amount",
        F.col("label").alias("alert"),
        "source",
        "position",
        F.array(F.lit("late")).alias("reasons"),
    )
