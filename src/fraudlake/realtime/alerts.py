"""Alerts of the fast lane: each valid message, with its account's last rows in one built-in aggregate, becomes events.

In Real-time Mode (Spark 4.3, update mode) an aggregation emits a row for each row that it takes, where a micro-batch
emits one for each of its keys. So the aggregate that keeps an account's last rows shows each row with those before it.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from fraudlake.delivery import event
from fraudlake.detection import alerts
from fraudlake.realtime import candidates, messages
from fraudlake.silver import transactions

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from fraudlake.realtime.rules import LaneRules
    from fraudlake.settings import Settings

SOURCE = "/fraudlake/realtime"
"""The ``source`` of the events."""
METRICS = "messages"
"""The name of the metrics that the stream reports: ``messages``, ``rejected``, ``other_keys``."""
LATENESS = timedelta(microseconds=alerts.GRACE)
"""How far behind the newest row a row may come: as far as the exact lane keeps flags in the order of arrival."""
_AHEAD = timedelta(minutes=1)
"""How far ahead of Kafka's clock and ours a row's time may move the watermark."""
_ROWS_OF_PAIRS, _ROWS_OF_THRESHOLDS = 16, 1000
"""How many rows an entry of the state has at most, without and with thresholds."""
_MICROSECOND = timedelta(microseconds=1)
_TIME = "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'"


def events(kafka: DataFrame, settings: Settings, rules: LaneRules, keep_forever: bool = False) -> DataFrame:
    """Evaluate rules on a stream of messages.

    Args:
        kafka: a stream of Spark's Kafka source.
        settings: the quality rules and the declared columns.
        rules: the rules.
        keep_forever: keep each account's last rows for good, instead of a time of them.

    Returns:
        ``key`` (the account), ``value`` (the alert as a CloudEvent in JSON) and ``headers`` of messages.
    """
    last_rows = _last_rows(_rows(kafka, settings, rules.span), rules, keep_forever)
    raised = last_rows.select("account_id", F.inline(_candidates(rules, keep_forever)))
    output = raised.withColumns({"is_shadow": F.lit(False), "rule_version": F.lit(None).cast("bigint")})
    return _as_messages(alerts.alerts(output, columns=candidates.PLACE).withColumn("detected_at", now()))


def now() -> Column:
    """Return the time at which a row is evaluated; SQL's own functions say when the batch began, minutes ago."""
    return F.reflect(F.lit("java.time.Instant"), F.lit("now")).cast("timestamp")


def _rows(kafka: DataFrame, settings: Settings, span: timedelta) -> DataFrame:
    """Return the valid transactions as rows of candidates, with a watermark that no time in the future moves away."""
    checked = transactions.checked(messages.bronze(kafka, settings), settings, now()).observe(
        METRICS,
        F.count(F.lit(1)).alias("messages"),
        F.count_if(F.size("reasons") > 0).alias("rejected"),
        F.count_if(F.col("accountId").isNotNull() & ~F.col("accountId").eqNullSafe(F.col("_key"))).alias("other_keys"),
    )
    ahead = F.make_dt_interval(secs=F.lit(_AHEAD.total_seconds()))
    window_time = F.least("timestamp", F.col("_appended") + ahead, now() + ahead)
    valid = transactions.valid(checked, ("_partition", "_offset", "_appended")).withColumn("window_time", window_time)
    delay = LATENESS + _AHEAD
    return valid.withWatermark("window_time", f"{delay / timedelta(seconds=1):.0f} seconds").select(
        "account_id",
        "window_time",
        F.struct(
            F.unix_micros("timestamp").alias("time"),
            F.col("_partition").alias("partition"),
            F.col("_offset").alias("offset"),
            F.col("_appended").alias("appended"),
            "transaction_id",
            "amount",
            F.unix_micros("window_time").alias("window_time"),
        ).alias("row"),
    )


def _last_rows(rows: DataFrame, rules: LaneRules, keep_forever: bool) -> DataFrame:
    """Return, for each row, its account's last ones: ``account_id, rows`` (the latest first), ``arrived, begin``.

    The rows of an account are in the order in which Kafka got them, which holds across partitions, too: when a topic
    gets more of them, an account's rows move. ``arrived`` is the place of the row itself in that order. Each row is in
    two windows of twice the rules' span, which begin a span apart (``begin``, microseconds): two rows of one alert
    share at least one of them.
    """
    order = F.struct("row.appended", "row.offset", "row.partition")
    count = _ROWS_OF_THRESHOLDS if rules.thresholds else _ROWS_OF_PAIRS
    aggregates = F.max_by("row", order, count).alias("rows"), F.last(order).alias("arrived")
    if keep_forever:
        return rows.groupBy("account_id").agg(*aggregates)
    span = rules.span // _MICROSECOND
    window = F.window("window_time", f"{2 * span} microseconds", f"{span} microseconds")
    grouped = rows.groupBy(window, "account_id").agg(*aggregates)
    return grouped.withColumn("begin", F.unix_micros("window.start"))


def _candidates(rules: LaneRules, keep_forever: bool) -> Column:
    """Return the candidates of a row, as an array.

    They are the pairs that it makes with the row before and, where it came late, with the row behind; and thresholds.
    Each candidate is taken from one of the two windows: a pair from that of its earlier row, a threshold from the one
    that reaches back.
    """
    arrived, span = F.col("arrived"), F.lit(rules.span // _MICROSECOND)

    def order(row: Column) -> Column:
        return F.struct(row["appended"], row["offset"], row["partition"])

    def begin(row: Column) -> Column:
        return row["window_time"] - F.pmod(row["window_time"], span)

    def first(rows: Column) -> Column:
        return F.get(rows, F.lit(0))

    current = first(F.filter("rows", lambda row: order(row) == arrived))
    before = first(F.filter("rows", lambda row: order(row) < arrived))
    behind = first(F.reverse(F.filter("rows", lambda row: order(row) > arrived)))
    pairs = [
        F.when(
            F.lit(keep_forever) if keep_forever else F.col("begin") == F.least(begin(small), begin(large)),
            candidates.of_pair(rule, small, large),
        )
        for rule in rules.pairs
        for small, large in ((before, current), (current, behind))
    ]
    reaches_back = F.lit(True) if keep_forever else F.col("begin") == begin(current) - span
    thresholds = [
        F.when(reaches_back, candidates.of_threshold(rule, last, F.col("account_id"), current, F.col("rows")))
        for rule, last in rules.thresholds
    ]
    arrays = [F.array_compact(F.array(*pairs))] if pairs else []
    return F.concat(*arrays, *(F.coalesce(one, F.array()) for one in thresholds))


def _as_messages(alert_rows: DataFrame) -> DataFrame:
    data = [name for name in alert_rows.columns if name not in candidates.PLACE]
    as_json = {"ignoreNullFields": "false", "timestampFormat": _TIME}
    value = F.struct(
        F.lit("1.0").alias("specversion"),
        F.col("alert_id").alias("id"),
        F.lit(SOURCE).alias("source"),
        F.lit(event.TYPE).alias("type"),
        F.col("account_id").alias("subject"),
        F.col("detected_at").alias("time"),
        F.lit("application/json").alias("datacontenttype"),
        F.struct(*data).alias("data"),
        F.col("partition").alias("transactionpartition"),
        F.col("offset").alias("transactionoffset"),
        F.date_format("appended", "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'").alias("transactiontime"),
    )
    content_type = F.struct(F.lit("content-type").alias("key"), F.lit(event.CONTENT_TYPE).cast("binary").alias("value"))
    return alert_rows.select(
        F.col("account_id").alias("key"),
        F.to_json(value, as_json).alias("value"),
        F.array(content_type).alias("headers"),
    )
