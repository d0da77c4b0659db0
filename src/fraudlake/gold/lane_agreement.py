"""Lane agreement: matches the alerts of the fast lane and of the exact lane, and counts them by day and rule.

The exact lane is ``detect``. An alert of only one lane gets a reason from :mod:`.lane_reason`.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from fraudlake.entity import ACCOUNT
from fraudlake.gold import lane_reason
from fraudlake.gold.aggregate import Aggregate
from fraudlake.gold.lane_reason import ALERT, KINDS, REASONS
from fraudlake.silver import transactions as silver
from fraudlake.tables import BRONZE_FAST_ALERTS, SILVER_ALERTS, Table

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

KEYS = ("date", "rule")
TABLE = Table(
    "gold_lane_agreement",
    "A day (UTC) of a rule: alerts of the fast lane against those of the exact one (docs/how-to/analytics.md).",
    """
    date DATE day (UTC) of the transaction that completed the alert
    rule STRING name of the rule
    both BIGINT alerts that both lanes raised
    only_fast BIGINT alerts that only the fast lane raised
    only_exact BIGINT alerts that only the exact lane raised
    only_fast_not_running BIGINT of only_fast: the exact lane does not evaluate the rule
    only_fast_pending BIGINT of only_fast: the exact lane has yet to evaluate the transaction
    only_fast_late BIGINT of only_fast: a transaction came late
    only_fast_quarantined BIGINT of only_fast: a transaction, or a duplicate between the two, is in quarantine
    only_fast_out_of_order BIGINT of only_fast: the account's transactions came in another order than their times
    only_fast_unknown BIGINT of only_fast: another reason
    only_exact_not_running BIGINT of only_exact: no alert shows that the fast lane ran then, or with this rule
    only_exact_pending BIGINT of only_exact: no alert shows that the fast lane has read this far in the topic
    only_exact_late BIGINT of only_exact: a transaction came late
    only_exact_quarantined BIGINT of only_exact: a transaction, or a duplicate between the two, is in quarantine
    only_exact_out_of_order BIGINT of only_exact: the account's transactions came in another order than their times
    only_exact_unknown BIGINT of only_exact: another reason
    duplicates BIGINT messages of the fast lane beyond the first of each alert
    latency_p50 DOUBLE milliseconds from that transaction's message to the alert's first one: the median
    latency_p95 DOUBLE the 95th percentile; linear between two alerts, as are the others
    latency_p99 DOUBLE the 99th percentile
    latency_max DOUBLE the longest
    """,
)
AGGREGATE = Aggregate(
    TABLE,
    KEYS,
    {
        BRONZE_FAST_ALERTS: ("date", "true AS is_fast"),
        SILVER_ALERTS: ("to_date(timestamp) AS date", "false AS is_fast"),
    },
)
LANES = ("fast", "exact")
_TRANSACTIONS = ("account_id", "transaction_id", "timestamp", "kind", "first_transaction_id", "first_timestamp")
_PLACE = ("partition", "position")
_PERCENTILES = {"latency_p50": 0.5, "latency_p95": 0.95, "latency_p99": 0.99, "latency_max": 1.0}


def lane_agreement(
    fast: DataFrame,
    exact: DataFrame,
    transactions: DataFrame,
    quarantine: DataFrame,
    messages: DataFrame,
    rules: Mapping[str, timedelta],
    watermark: Column | None,
) -> DataFrame:
    """Match the alerts of both lanes, count them by day and rule, and give each alert of only one lane a reason.

    Alerts of the exact lane count only if the fast lane can raise them, too: their rule is of :data:`KINDS` and groups
    by account, and the transaction that completed them came from the topic.

    Args:
        fast: ``bronze_fast_alerts`` of whole days.
        exact: ``silver_alerts`` of the same days.
        transactions: ``silver_transactions`` of the same days, and of neighbouring days that an alert may depend on.
        quarantine: ``silver_quarantine``.
        messages: all of ``bronze_fast_alerts``, which show how far the fast lane has read.
        rules: the names of the rules that the exact lane evaluates, with the time that each looks back.
        watermark: the time from which on transactions wait in the exact lane; None if they do not wait.

    Returns:
        The columns of ``gold_lane_agreement``.
    """
    partition = F.when(silver.is_from_kafka(), F.substring_index("source", "/", -1).cast("int"))
    placed = transactions.select("transaction_id", "account_id", "timestamp", partition.alias("partition"), "position")
    matched = _matched(fast, exact, placed.where("partition IS NOT NULL")).withColumns(
        {
            "is_foreign": ~F.col("rule").isin([*rules]),
            "is_waiting": F.lit(False) if watermark is None else F.col("timestamp") >= watermark,
        }
    )
    look_back = max(rules.values(), default=timedelta(0))
    with_reasons = lane_reason.with_reasons(matched, placed, quarantine, messages, look_back)
    counts = {"both": "fast AND exact", "only_fast": "NOT exact", "only_exact": "NOT fast"}
    counts |= {f"only_{lane}_{reason}": f"{lane} AND reason = '{reason}'" for lane in LANES for reason in REASONS}
    return (
        with_reasons.groupBy(*KEYS)
        .agg(
            *(F.count_if(F.expr(condition)).alias(name) for name, condition in counts.items()),
            F.sum(F.greatest(F.col("messages") - 1, F.lit(0))).alias("duplicates"),
            *(F.percentile("latency", F.lit(share)).alias(name) for name, share in _PERCENTILES.items()),
        )
        .select(*TABLE.column_names)
    )


def _matched(fast: DataFrame, exact: DataFrame, placed: DataFrame) -> DataFrame:
    """Return one row per alert: its first and last transactions, the last one's place, and the lanes that raised it.

    From the fast lane it has the number of ``messages``, and the ``latency`` of the first in milliseconds.
    ``is_silent`` says whether that lane has no alert in the same ten minutes.
    """
    place = (F.col("transaction_partition").alias("partition"), F.col("transaction_offset").alias("position"))
    first = F.min(F.struct("appended_at", "transaction_appended_at", *_TRANSACTIONS, *place)).alias("first")
    latency = F.unix_millis("first.appended_at") - F.unix_millis("first.transaction_appended_at")
    values = [F.col(f"first.{name}") for name in (*_TRANSACTIONS, *_PLACE)] + [
        F.col("messages"),
        latency.alias("latency"),
    ]
    by_alert = fast.where("alert_id IS NOT NULL").groupBy(*ALERT).agg(first, F.count("*").alias("messages"))
    of_fast = by_alert.select(*ALERT, *values, F.lit("fast").alias("lane"))
    begun = F.col("evidence")[0]
    values_of_exact = {
        "date": F.to_date("timestamp"),
        "first_transaction_id": begun["transaction_id"],
        "first_timestamp": begun["timestamp"],
        "lane": F.lit("exact"),
    }
    of_exact = (
        exact.where(F.col("kind").isin(*KINDS) & (F.col("entity") == ACCOUNT))
        .join(placed.select("transaction_id", *_PLACE), on="transaction_id")
        .withColumns(values_of_exact)
        .select(*ALERT, *_TRANSACTIONS, *_PLACE, "lane")
    )
    ten_minutes = Window.partitionBy("date", F.floor(F.unix_seconds("timestamp") / 600))
    return (
        of_fast.unionByName(of_exact, allowMissingColumns=True)
        .groupBy(*ALERT)
        .agg(
            *(F.max(name).alias(name) for name in (*_TRANSACTIONS, *_PLACE, "messages", "latency")),
            *(F.bool_or(F.col("lane") == lane).alias(lane) for lane in LANES),
        )
        .withColumn("is_silent", ~F.max("fast").over(ten_minutes))
    )
