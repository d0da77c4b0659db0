"""Lane reason: explains each alert that only one lane raised, by the rows of its account near it.

docs/how-to/analytics.md describes the reasons.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from fraudlake.silver import quality_rules
from fraudlake.silver import transactions as silver

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PAIR, WINDOW = KINDS = ("small_then_large", "threshold")
"""The kinds of rules that the fast lane evaluates: on a pair of transactions, or on the transactions of a window."""
REASONS = ("not_running", "pending", "late", "quarantined", "out_of_order", "unknown")
LATE = timedelta(minutes=10)
"""How much older than an earlier message a transaction is when it counts as late; the fast lane waits that long."""
ALERT = ("date", "rule", "alert_id")
"""The columns that identify an alert of either lane."""
_DUPLICATE = ", ".join(f"'{name}'" for name in (*quality_rules.REPEATED_POSITION, quality_rules.TRANSACTION_IS_NEW))
_OF_ROW = {
    "refined": "row.reasons IS NULL",
    "of_pair": "(row.at.partition, row.at.position) IN ((partition, position), (small.partition, small.position))",
    "in_time": "row.at > least(small, large) AND row.at < greatest(small, large)",
    "in_topic": "row.at.partition <=> partition AND row.at.position > least(small.position, position)"
    " AND row.at.position < greatest(small.position, position)",
    "in_window": f"kind = '{WINDOW}' AND row.at.timestamp <= timestamp",
}
"""A row near an alert: whether it is one of its pair, between the two, or in the window of its threshold."""
_OF_ALERT = {
    "is_refined": "refined AND row.transaction_id = transaction_id",
    "has_late": f"array_contains(row.reasons, '{quality_rules.LATE}') AND (of_pair OR in_window)",
    "has_quarantined": "NOT refined AND (of_pair OR (in_topic OR in_window)"
    f" AND arrays_overlap(row.reasons, array({_DUPLICATE})))",
    "has_displaced": f"refined AND if(kind = '{WINDOW}', row.at.partition <> partition"
    " OR in_window <> (row.at.position <= position), in_topic <> in_time)",
}
"""An alert: whether one of its rows is like this. ``is_refined``: silver has the transaction that completed it."""
_LATE = f"INTERVAL '{LATE.total_seconds():.0f}' SECOND"
# If silver has the large transaction, the exact lane has read the small one: if silver lacks it, it was unreadable.
_REASON = f"""CASE
    WHEN fast AND exact THEN NULL
    WHEN if(exact, position < first_position OR NOT array_contains(rules, rule), is_foreign) THEN 'not_running'
    WHEN exact AND position > coalesce(last_position, -1) THEN 'pending'
    WHEN has_late OR exists(minutes, one -> one.minute > timestamp + {_LATE} AND one.position < position
        OR one.minute > small.timestamp + {_LATE} AND one.position < small.position) THEN 'late'
    WHEN has_quarantined OR fast AND is_refined AND kind = '{PAIR}' AND small IS NULL
        THEN 'quarantined'
    WHEN fast AND (NOT is_refined OR is_waiting) THEN 'pending'
    WHEN has_displaced OR (small.position > position) <> (first_timestamp > timestamp) OR small.partition <> partition
        THEN 'out_of_order'
    WHEN exact AND is_silent THEN 'not_running'
    ELSE 'unknown' END"""


def with_reasons(
    alerts: DataFrame, placed: DataFrame, quarantine: DataFrame, messages: DataFrame, look_back: timedelta
) -> DataFrame:
    """Add ``reason``, one of :data:`REASONS`, to the alerts of only one lane; it is null for those of both.

    Args:
        alerts: the alerts of both lanes, as :mod:`.lane_agreement` matches them.
        placed: transactions near them: ``transaction_id, account_id, timestamp, partition, position``.
        quarantine: ``silver_quarantine``.
        messages: all of ``bronze_fast_alerts``.
        look_back: the longest time that a rule looks back.
    """
    with_rows = _with_rows(alerts, placed, quarantine, look_back)
    return with_rows.join(_progress(messages, placed), on="partition", how="left").withColumn("reason", F.expr(_REASON))


def _with_rows(alerts: DataFrame, placed: DataFrame, quarantine: DataFrame, look_back: timedelta) -> DataFrame:
    """Return alerts with :data:`_OF_ALERT`, and ``small``: the time and place of the small transaction in silver.

    For an alert of only one lane, they are derived from its account's rows near it, and from quarantined rows at its
    place, since a message that cannot be read has no account.
    """
    rejected = quarantine.where("_topic IS NOT NULL").select(
        F.col("accountId").alias("account_id"),
        F.coalesce(silver.own_id(), silver.derived_id(silver.source(), silver.position())).alias("transaction_id"),
        F.col("dt").alias("timestamp"),
        F.col("_partition").alias("partition"),
        F.col("_offset").alias("position"),
        "reasons",
    )
    place = "concat_ws('/', partition, position)"
    rows = placed.unionByName(rejected, allowMissingColumns=True).selectExpr(
        f"coalesce(account_id, {place}) AS key_of_row",
        "account_id AS of_account",
        "struct(transaction_id, struct(timestamp, partition, position) AS at, reasons) AS row",
    )
    window = f"INTERVAL '{look_back.total_seconds():f}' SECOND"
    is_near = f"""fast <> exact AND key = key_of_row
        AND (of_account IS NULL OR of_account = account_id AND row.at.timestamp BETWEEN
        if(kind = '{WINDOW}', timestamp - {window}, least(first_timestamp, timestamp) - {_LATE})
        AND greatest(first_timestamp, timestamp) + {_LATE})"""
    is_small = f"kind = '{PAIR}' AND row.reasons IS NULL AND row.transaction_id = first_transaction_id"
    small = f"max(if({is_small}, row.at, NULL))"
    return (
        alerts.selectExpr("*", f"explode(array(account_id, {place})) AS key")
        .join(rows, F.expr(is_near), how="left")
        .selectExpr("*", "struct(timestamp, partition, position) AS large")
        .selectExpr("*", f"{small} OVER (PARTITION BY {', '.join(ALERT)}) AS small")
        .withColumns({name: F.expr(is_so) for name, is_so in _OF_ROW.items()})
        .groupBy(*alerts.columns, "small")
        .agg(*(F.coalesce(F.bool_or(F.expr(is_so)), F.lit(False)).alias(name) for name, is_so in _OF_ALERT.items()))
    )


def _progress(messages: DataFrame, placed: DataFrame) -> DataFrame:
    """Return how far the fast lane has read each partition, according to its alerts, and event time by position.

    ``rules`` are those that raised a fast alert; ``minutes`` has the first ``position`` in each minute of event time.
    """
    offset = F.col("transaction_offset")
    reach = {"first_position": F.min(offset), "last_position": F.max(offset), "rules": F.collect_set("rule")}
    raised = messages.where("alert_id IS NOT NULL").groupBy(F.col("transaction_partition").alias("partition"))
    minutes = placed.groupBy("partition", F.date_trunc("minute", "timestamp").alias("minute"))
    first = minutes.agg(F.min("position").alias("position")).groupBy("partition")
    reached = first.agg(F.collect_list(F.struct("minute", "position")).alias("minutes"))
    return raised.agg(*(value.alias(name) for name, value in reach.items())).join(reached, on="partition", how="full")
