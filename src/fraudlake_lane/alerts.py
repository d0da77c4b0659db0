"""Alerts of the fast lane: evaluates rules on each valid message and its neighbours, and formats alerts as events."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from fraudlake.delivery import event
from fraudlake.detection import alerts
from fraudlake.entity import ACCOUNT
from fraudlake.rules.kinds import small_then_large
from fraudlake.silver import transactions
from fraudlake.times.calendar import MICROSECOND
from fraudlake_lane import evidence, messages, thresholds
from fraudlake_lane.neighbours import LATENESS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from fraudlake.rules.kinds.small_then_large import SmallThenLargeRule
    from fraudlake.rules.kinds.threshold import ThresholdRule
    from fraudlake.settings import Settings
    from fraudlake_lane.rules import LaneRule, LaneRules

SOURCE = "/fraudlake/realtime"
"""The ``source`` of the events."""
METRICS = "messages"
"""The name of the stream's metrics of messages: ``messages``, ``rejected``, ``other_keys``."""
WINDOWS = "windows"
"""The name of the stream's metrics of thresholds' windows: ``crowded``."""
_AHEAD = timedelta(minutes=1)
"""How far a row may move the watermark ahead of the clocks of Kafka and this machine."""
_EVER = timedelta(days=200 * 365)
"""A time longer than any topic's history."""
PLACE = ("partition", "offset", "appended")
"""The position of the message of an alert's transaction, and when Kafka appended it."""
_OUTPUT = {
    "rule": "string",
    "rule_version": "bigint",
    "transaction_id": "string",
    "time": "bigint",
    "amount": "double",
    "kind": "string",
    "first_transaction_id": "string",
    "evidence": "string",
    "columns": "string",
    "measures": "string",
    "explanation": "string",
}
"""The columns of the detector's output that differ from alert to alert of an account."""
_TIME = "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'"


def now() -> Column:
    """Return the time at which a row is evaluated; SQL's functions return the start of the batch, minutes ago."""
    return F.reflect(F.lit("java.time.Instant"), F.lit("now")).cast("timestamp")


def events(
    kafka: DataFrame,
    settings: Settings,
    rules: LaneRules,
    neighbours: Callable[[DataFrame, timedelta | None, int], DataFrame],
    since: datetime | None = None,
    *,
    is_catching_up: bool = False,
    clock: Callable[[], Column] = now,
) -> DataFrame:
    """Evaluate rules on a stream of messages.

    Args:
        kafka: a stream of Spark's Kafka source.
        settings: the quality rules and the declared columns.
        rules: the rules.
        neighbours: one of the functions of :mod:`fraudlake_lane.neighbours`.
        since: the time from which the state has all rows; None: it has all rows of the topic.
        is_catching_up: whether a backlog is read: its partitions are read at different paces, so the watermark stays.
        clock: makes the column of the time at which a row is evaluated.

    Returns:
        ``key`` (the account), ``value`` (the alert as a CloudEvent in JSON) and ``headers`` of messages.
    """
    delay = _EVER if is_catching_up else LATENESS + _AHEAD
    count = rules.rows(is_catching_up=is_catching_up)
    rows = neighbours(_rows(kafka, settings, delay, clock()), rules.span, count)
    if rules.thresholds:
        rows = _with_windows(rows, rules, since, count)
    raised = [*map(_pair_alerts, rules.pairs), *map(_window_alerts, rules.thresholds)]
    of_account = {"is_shadow": F.lit(False), "entity": F.lit(ACCOUNT), "entity_key": F.col("account_id")}
    output = rows.select("account_id", F.inline(F.concat(*raised))).withColumns(of_account)
    return _as_messages(alerts.alerts(output, columns=PLACE).withColumn("detected_at", clock()))


def _rows(kafka: DataFrame, settings: Settings, delay: timedelta, now: Column) -> DataFrame:
    """Return the valid transactions with a watermark that timestamps in the future cannot advance."""
    checked = transactions.checked(messages.bronze(kafka, settings), settings, now).observe(
        METRICS,
        F.count(F.lit(1)).alias("messages"),
        F.count_if(F.size("reasons") > 0).alias("rejected"),
        F.count_if(F.col("accountId").isNotNull() & ~F.col("accountId").eqNullSafe(F.col("_key"))).alias("other_keys"),
    )
    ahead = F.make_dt_interval(secs=F.lit(_AHEAD.total_seconds()))
    window_time = F.least("timestamp", F.col("_appended") + ahead, now + ahead)
    valid = transactions.valid(checked, ("_partition", "_offset", "_appended")).withColumn("window_time", window_time)
    return valid.withWatermark("window_time", f"{delay / timedelta(seconds=1):.0f} seconds").select(
        "account_id",
        "window_time",
        F.struct(
            F.unix_micros("timestamp").alias("time"),
            F.col("_partition").alias("partition"),
            F.col("_offset").alias("offset"),
            F.unix_micros("_appended").alias("appended"),
            "transaction_id",
            "amount",
            F.unix_micros("window_time").alias("window_time"),
        ).alias("row"),
    )


def _with_windows(rows: DataFrame, rules: LaneRules, since: datetime | None, count: int) -> DataFrame:
    """Return rows with the columns that thresholds need.

    Args:
        rows: as :mod:`fraudlake_lane.neighbours` returns them.
        rules: the rules.
        since: as for :func:`events`.
        count: the largest number of an account's rows in the state.

    Returns:
        ``account_id, before, current, after``; ``rows`` in the order of event time; ``due``, the rows to evaluate;
        and ``gap``, the time in microseconds up to which rows may be missing, or null.
    """
    is_full = F.size("rows") >= count
    # Rows that were dropped are no later than the earliest row in the state.
    dropped = F.when(is_full, F.element_at("rows", -1)["time"])
    unknown = F.lit(None if since is None else round(since.timestamp() * 1_000_000)).cast("bigint")
    current = F.col("current")
    longest = rules.longest_window // MICROSECOND
    is_due = current["window_time"] >= F.col("due_from")
    return (
        rows.withColumn("gap", F.greatest(dropped, unknown))
        .observe(WINDOWS, F.count_if(is_due & (current["time"] - longest <= dropped)).alias("crowded"))
        .withColumn("rows", F.array_sort("rows"))
        .withColumn(
            "due",
            F.filter(
                "rows",
                lambda row: (row["time"] >= current["time"]) & (row["window_time"] >= F.col("due_from")),
            ),
        )
    )


def _window_alerts(threshold: LaneRule[ThresholdRule]) -> Column:
    """Return the alerts of a threshold, as an array of structs in the columns of the detector's output."""
    raised = thresholds.raised(threshold.rule, *map(F.col, ("account_id", "rows", "current", "due", "gap")))
    names = ("first_transaction_id", "evidence", "measures", "explanation")
    return F.transform(raised, lambda alert: _alert(threshold, alert["row"], {name: alert[name] for name in names}))


def _pair_alerts(pair: LaneRule[SmallThenLargeRule]) -> Column:
    """Return the alerts of a pair rule on a row and the rows before and after it, as an array of such structs.

    A row has another after it if it was read late: its account has moved to another partition, read in parallel.
    """
    before = F.col("before")
    current = F.col("current")
    after = F.col("after")
    return F.array_compact(F.array(_pair(pair, before, current), _pair(pair, current, after)))


def _pair(pair: LaneRule[SmallThenLargeRule], small: Column, large: Column) -> Column:
    """Return the detector's output for two rows; null if the rule does not hold."""
    named = [*zip(small_then_large.ROLES, (small, large), strict=True)]
    transactions = F.concat_ws(", ", *(evidence.words(role, row) for role, row in named))
    measures = {small_then_large.MEASURE: _seconds(large["time"] - small["time"])}
    of_pair = {
        "first_transaction_id": small["transaction_id"],
        "evidence": F.to_json(F.array(*(evidence.transaction(role, row) for role, row in named))),
        "measures": evidence.as_json(measures),
        "explanation": evidence.sentence(F.col("account_id"), transactions, measures),
    }
    return F.when(pair.rule.is_raised(small, large), _alert(pair, large, of_pair))


def _seconds(microseconds: Column) -> Column:
    """Return a time as a text of seconds, as Python writes a number; parts of a millisecond are cut off."""
    milliseconds = (microseconds / 1000).cast("bigint")
    return F.regexp_replace((milliseconds / 1000).cast("decimal(20,3)").cast("string"), "0{1,2}$", "")


def _alert(
    of: LaneRule[SmallThenLargeRule] | LaneRule[ThresholdRule], transaction: Column, further: dict[str, Column]
) -> Column:
    """Return the detector's output of an alert, and the position of its transaction's message."""
    values = {
        "rule": F.lit(of.rule.name),
        "rule_version": F.lit(of.version),
        "kind": F.lit(of.rule.kind),
        **{name: transaction[name] for name in ("transaction_id", "time", "amount")},
        **further,
    }
    columns = [values.get(name, F.lit(None)).cast(kind).alias(name) for name, kind in _OUTPUT.items()]
    return F.struct(*columns, *(transaction[name].alias(name) for name in PLACE))


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
        F.date_format(F.timestamp_micros("appended"), "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'").alias("transactiontime"),
    )
    content_type = F.struct(F.lit("content-type").alias("key"), F.lit(event.CONTENT_TYPE).cast("binary").alias("value"))
    return alert_rows.select(
        F.col("account_id").alias("key"),
        F.to_json(value, as_json).alias("value"),
        F.array(content_type).alias("headers"),
    )
