"""Silver alerts: turns the detector's output into rows of ``silver_alerts``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from fraudlake.silver import clock

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_EVIDENCE = "array<struct<variable:string,transaction_id:string,time:bigint,amount:double>>"
_COLUMNS = "array<map<string,string>>"


def alerts(detector_output: DataFrame, is_shadow: bool = False, columns: Iterable[str] = ()) -> DataFrame:
    """Return the alerts in the columns of ``silver_alerts``, with times in UTC.

    ``is_shadow`` selects the alerts of shadow rules instead; further ``columns`` of the output follow.
    """
    transactions = F.from_json("evidence", _EVIDENCE)
    return detector_output.where(F.col("is_shadow") == F.lit(is_shadow)).select(
        alert_id("rule", "first_transaction_id", "transaction_id").alias("alert_id"),
        "rule",
        "account_id",
        "transaction_id",
        F.timestamp_micros("time").alias("timestamp"),
        "amount",
        "explanation",
        clock.now().alias("detected_at"),
        "kind",
        F.transform(transactions, _transaction).alias("evidence"),
        F.from_json("measures", "map<string,string>").alias("measures"),
        "rule_version",
        F.from_json("columns", _COLUMNS).alias("evidence_columns"),
        "entity",
        "entity_key",
        *columns,
    )


def _transaction(row: Column) -> Column:
    """Return a transaction of an alert's evidence."""
    return F.struct(
        row["variable"].alias("variable"),
        row["transaction_id"].alias("transaction_id"),
        F.timestamp_micros(row["time"]).alias("timestamp"),
        row["amount"].alias("amount"),
    )


def alert_id(rule: str, first: str, second: str) -> Column:
    """Make an id from a rule's name and two transactions' ids, all given as columns' names.

    They are joined by ``|``. If a producer's id contains ``|``, the length of the first id marks its end.
    """
    length = F.when(F.concat(first, second).contains("|"), F.length(first))
    return F.sha2(F.concat_ws("|", rule, length.cast("string"), first, second), 256).substr(1, 32)
