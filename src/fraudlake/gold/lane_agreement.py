"""Lane agreement: matches the alerts of the fast lane and of the exact lane, and counts them by day and rule.

The exact lane is ``detect``. An alert of only one lane gets a reason; docs/how-to/analytics.md explains the reasons.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from fraudlake.entity import ACCOUNT
from fraudlake.gold.aggregate import Aggregate
from fraudlake.silver import quality_rules
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
PAIR, WINDOW = KINDS = ("small_then_large", "threshold")
"""The kinds of rules that the fast lane evaluates: on a pair of transactions, or on the transactions of a window."""
LANES = ("fast", "exact")
REASONS = ("not_running", "pending", "late", "quarantined", "out_of_order", "unknown")
LATE = timedelta(minutes=10)
"""How much older than an earlier message a transaction is when it counts as late; the fast lane waits that long."""
_ALERT = (*KEYS, "alert_id")
_TRANSACTIONS = ("account_id", "transaction_id", "timestamp", "kind", "first_transaction_id", "first_timestamp")
_PLACE = ("partition", "position")
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
    with_rows = _with_rows(matched, placed, quarantine, max(rules.values(), default=timedelta(0)))
    counts = {"both": "fast AND exact", "only_fast": "NOT exact", "only_exact": "NOT fast"}
    counts |= {f"only_{lane}_{reason}": f"{lane} AND reason = '{reason}'" for lane in LANES for reason in REASONS}
    return (
        with_rows.join(_progress(messages, placed), on="partition", how="left")
        .withColumn("reason", F.expr(_REASON))
        .groupBy(*KEYS)
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
    by_alert = fast.where("alert_id IS NOT NULL").groupBy(*_ALERT).agg(first, F.count("*").alias("messages"))
    of_fast = by_alert.select(*_ALERT, *values, F.lit("fast").alias("lane"))
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
        .select(*_ALERT, *_TRANSACTIONS, *_PLACE, "lane")
    )
    ten_minutes = Window.partitionBy("date", F.floor(F.unix_seconds("timestamp") / 600))
    return (
        of_fast.unionByName(of_exact, allowMissingColumns=True)
        .groupBy(*_ALERT)
        .agg(
            *(F.max(name).alias(name) for name in (*_TRANSACTIONS, *_PLACE, "messages", "latency")),
            *(F.bool_or(F.col("lane") == lane).alias(lane) for lane in LANES),
        )
        .withColumn("is_silent", ~F.max("fast").over(ten_minutes))
    )


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
        .selectExpr("*", f"{small} OVER (PARTITION BY {', '.join(_ALERT)}) AS small")
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
