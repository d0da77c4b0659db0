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
from fraudlake.realtime import messages
from fraudlake.silver import transactions

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from fraudlake.realtime.rules import LaneRules
    from fraudlake.rules.small_then_large import FraudRule
    from fraudlake.settings import Settings

SOURCE = "/fraudlake/realtime"
"""The ``source`` of the events."""
METRICS = "messages"
"""The name of the metrics that the stream reports: ``messages``, ``rejected``, ``other_keys``."""
LATENESS = timedelta(microseconds=alerts.GRACE)
"""How far behind the newest row a row may come: as far as the exact lane keeps flags in the order of arrival."""
_AHEAD = timedelta(minutes=1)
"""How far ahead of Kafka's clock and ours a row's time may move the watermark."""
_ROWS = 16
"""How many rows an entry of the state has at most."""
PLACE = ("partition", "offset", "appended")
"""Where the message of an alert's transaction is, and since when."""
_OUTPUT = {
    "rule": "string",
    "transaction_id": "string",
    "time": "bigint",
    "amount": "double",
    "small_transaction_id": "string",
    "small_time": "bigint",
    "small_amount": "double",
    "kind": "string",
    "first_transaction_id": "string",
    "evidence": "string",
    "measures": "string",
    "explanation": "string",
}
"""The columns of the detector's output, of which alerts are made."""
_MICROSECOND = timedelta(microseconds=1)
_TIME = "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'"


def events(kafka: DataFrame, settings: Settings, rules: LaneRules) -> DataFrame:
    """Evaluate rules on a stream of messages.

    Args:
        kafka: a stream of Spark's Kafka source.
        settings: the quality rules and the declared columns.
        rules: the rules.

    Returns:
        ``key`` (the account), ``value`` (the alert as a CloudEvent in JSON) and ``headers`` of messages.
    """
    last_rows = _last_rows(_rows(kafka, settings, rules.span), rules)
    raised = last_rows.select("account_id", F.inline(_raised(rules)))
    output = raised.withColumns({"is_shadow": F.lit(False), "rule_version": F.lit(None).cast("bigint")})
    return _as_messages(alerts.alerts(output, columns=PLACE).withColumn("detected_at", now()))


def now() -> Column:
    """Return the time at which a row is evaluated; SQL's own functions say when the batch began, minutes ago."""
    return F.reflect(F.lit("java.time.Instant"), F.lit("now")).cast("timestamp")


def _rows(kafka: DataFrame, settings: Settings, span: timedelta) -> DataFrame:
    """Return the valid transactions with a watermark that no time in the future moves away."""
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


def _last_rows(rows: DataFrame, rules: LaneRules) -> DataFrame:
    """Return, for each row, its account's last ones: ``account_id, rows`` (the latest first), ``arrived, begin``.

    The rows of an account are in the order in which Kafka got them. ``arrived`` is the place of the row itself in that
    order. Each row is in two windows of twice the rules' span, which begin a span apart (``begin``, microseconds): two
    rows of one alert share at least one of them.
    """
    order = F.struct("row.appended", "row.offset", "row.partition")
    span = rules.span // _MICROSECOND
    window = F.window("window_time", f"{2 * span} microseconds", f"{span} microseconds")
    aggregates = F.max_by("row", order, _ROWS).alias("rows"), F.last(order).alias("arrived")
    return rows.groupBy(window, "account_id").agg(*aggregates).withColumn("begin", F.unix_micros("window.start"))


def _raised(rules: LaneRules) -> Column:
    """Return what the rules raise on a row and the one before it, as an array.

    A row that was read behind a later one of its account (partitions are read side by side, and an account moves to
    another one when a topic gets more) raises what it makes with that one, too. A pair is taken from one window that
    both rows are in: that of the earlier row.
    """
    span = F.lit(rules.span // _MICROSECOND)

    def order(row: Column) -> Column:
        return F.struct(row["appended"], row["offset"], row["partition"])

    def begin(row: Column) -> Column:
        return row["window_time"] - F.pmod(row["window_time"], span)

    def is_ours(small: Column, large: Column) -> Column:
        return F.col("begin") == F.least(begin(small), begin(large))

    current = F.get(F.filter("rows", lambda row: order(row) == F.col("arrived")), F.lit(0))
    before = F.get(F.filter("rows", lambda row: order(row) < F.col("arrived")), F.lit(0))
    after = F.try_element_at(F.filter("rows", lambda row: order(row) > F.col("arrived")), F.lit(-1))
    neighbours = (before, current), (current, after)
    pairs = [
        F.when(is_ours(small, large), _pair(rule, small, large)) for rule in rules.pairs for small, large in neighbours
    ]
    return F.array_compact(F.array(*pairs))


def _pair(rule: FraudRule, small: Column, large: Column) -> Column:
    """Return what the detector says of two rows in its output; null where the rule does not hold."""
    is_near = F.abs(large["time"] - small["time"]) <= rule.within // _MICROSECOND
    holds = (small["amount"] < rule.small_below) & (large["amount"] > rule.large_above) & is_near
    of_small = {"first_transaction_id": small["transaction_id"]}
    of_small |= {f"small_{name}": small[name] for name in ("transaction_id", "time", "amount")}
    known = {
        "rule": F.lit(rule.name),
        **{name: large[name] for name in ("transaction_id", "time", "amount")},
        **of_small,
    }
    columns = [known.get(name, F.lit(None)).cast(kind).alias(name) for name, kind in _OUTPUT.items()]
    return F.when(holds, F.struct(*columns, *(large[name].alias(name) for name in PLACE)))


def _as_messages(alert_rows: DataFrame) -> DataFrame:
    data = [name for name in alert_rows.columns if name not in PLACE]
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
