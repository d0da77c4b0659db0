"""Lane agreement: the alerts of the fast lane and of the exact lane are matched, and counted by day and rule.

The exact lane is ``detect``; what only one lane has gets a reason, which docs/analytics.md explains.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from fraudlake.gold.aggregate import Aggregate
from fraudlake.silver import quality_rules
from fraudlake.silver import transactions as silver
from fraudlake.tables import BRONZE_FAST_ALERTS, SILVER_ALERTS, Table

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

KEYS = ("date", "rule")
TABLE = Table(
    "gold_lane_agreement",
    "A day (UTC) of a rule: alerts of the fast lane against those of the exact one; docs/analytics.md has the reasons.",
    """
    date DATE day (UTC) of the large transaction
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
    latency_p50 DOUBLE milliseconds from the large transaction's message to the alert's first one: the median
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
KINDS = ("small_then_large", "threshold")
"""The kinds of rules that the fast lane evaluates."""
LANES = ("fast", "exact")
REASONS = ("not_running", "pending", "late", "quarantined", "out_of_order", "unknown")
LATE = timedelta(minutes=10)
"""How much older than an earlier message a transaction is when it counts as late; the fast lane waits that long."""
_ALERT = (*KEYS, "alert_id")
_PAIR = ("account_id", "transaction_id", "timestamp", "small_transaction_id", "small_timestamp")
_PLACE = ("partition", "position")
_PERCENTILES = {"latency_p50": 0.5, "latency_p95": 0.95, "latency_p99": 0.99, "latency_max": 1.0}


def with_places(transactions: DataFrame) -> DataFrame:
    """Return the positions of transactions in the topic.

    Args:
        transactions: ``silver_transactions``.

    Returns:
        ``transaction_id, account_id, timestamp, partition, position``; without a partition if a file had the row.
    """
    partition = F.when(silver.is_from_kafka(), F.substring_index("source", "/", -1).cast("int"))
    return transactions.select("transaction_id", "account_id", "timestamp", partition.alias("partition"), "position")


def alerts(messages: DataFrame, exact: DataFrame, transactions: DataFrame) -> DataFrame:
    """Match the alerts of both lanes. Those of the exact lane count that the fast lane can raise, too.

    These are of :data:`KINDS`, and the transaction that completed them came from the topic.

    Args:
        messages: ``bronze_fast_alerts`` of whole days.
        exact: ``silver_alerts`` of the same days.
        transactions: :func:`with_places` of the same days.

    Returns:
        One row an alert: ``date, rule, alert_id``; its pair of transactions, of which a threshold has no small one;
        ``partition, position`` of the large one in the topic; ``fast`` and ``exact``, whether the lane has it;
        ``messages``, their number; ``latency`` of the first of them, in milliseconds; ``is_silent``, whether the fast
        lane has no alert of the same ten minutes.
    """
    place = {"partition": "transaction_partition", "position": "transaction_offset"}
    of_fast = (
        messages.where("alert_id IS NOT NULL")
        .groupBy(*_ALERT)
        .agg(
            F.min(F.struct("appended_at", "transaction_appended_at", *_PAIR, *place.values())).alias("first"),
            F.count("*").alias("messages"),
        )
        .select(
            *_ALERT,
            *(f"first.{name}" for name in _PAIR),
            *(F.col(f"first.{given}").alias(name) for name, given in place.items()),
            F.lit(True).alias("fast"),
            F.lit(False).alias("exact"),
            "messages",
            (F.unix_millis("first.appended_at") - F.unix_millis("first.transaction_appended_at")).alias("latency"),
        )
    )
    of_exact = (
        exact.where(F.coalesce("kind", F.lit("small_then_large")).isin(*KINDS))
        .join(transactions.where("partition IS NOT NULL").select("transaction_id", *_PLACE), on="transaction_id")
        .select(
            F.to_date("timestamp").alias("date"),
            "rule",
            "alert_id",
            *_PAIR,
            *_PLACE,
            F.lit(False).alias("fast"),
            F.lit(True).alias("exact"),
            F.lit(0).cast("bigint").alias("messages"),
            F.lit(None).cast("bigint").alias("latency"),
        )
    )
    values = [name for name in of_fast.columns if name not in _ALERT]
    matched = of_fast.unionByName(of_exact).groupBy(*_ALERT).agg(*(F.max(name).alias(name) for name in values))
    ten_minutes = Window.partitionBy("date", F.floor(F.unix_seconds("timestamp") / 600))
    return matched.withColumn("is_silent", ~F.max("fast").over(ten_minutes))


def progress(messages: DataFrame, transactions: DataFrame) -> DataFrame:
    """Return how far the fast lane has read the topic, as far as its alerts show, and the event time at each position.

    Args:
        messages: all of ``bronze_fast_alerts``.
        transactions: :func:`with_places` of the days that are compared, and of neighbouring days.

    Returns:
        One row a partition: ``partition``; ``first_position`` and ``last_position`` of transactions that raised a fast
        alert; ``rules``, those that did; ``minutes``, each with the first ``position`` of a transaction of that time.
    """
    raised = (
        messages.where("alert_id IS NOT NULL")
        .groupBy(F.col("transaction_partition").alias("partition"))
        .agg(
            F.min("transaction_offset").alias("first_position"),
            F.max("transaction_offset").alias("last_position"),
            F.collect_set("rule").alias("rules"),
        )
    )
    reached = (
        transactions.where("partition IS NOT NULL")
        .groupBy("partition", F.date_trunc("minute", "timestamp").alias("minute"))
        .agg(F.min("position").alias("position"))
        .groupBy("partition")
        .agg(F.collect_list(F.struct("minute", "position")).alias("minutes"))
    )
    return raised.join(reached, on="partition", how="full")


def lane_agreement(
    matched: DataFrame,
    progress: DataFrame,
    transactions: DataFrame,
    quarantine: DataFrame,
    rules: Mapping[str, timedelta],
    watermark: Column | None,
) -> DataFrame:
    """Count alerts by day and rule, and give those that only one lane has a reason.

    Args:
        matched: :func:`alerts` of whole days.
        progress: :func:`progress`.
        transactions: :func:`with_places` of the same days, and of neighbouring days that a pair may reach.
        quarantine: ``silver_quarantine``.
        rules: the names of the rules that the exact lane evaluates, with the time that each looks back.
        watermark: from here on transactions wait in the exact lane; None if they do not wait.

    Returns:
        The columns of ``gold_lane_agreement``.
    """
    of_one = matched.where("fast <> exact")
    look_back = max(rules.values(), default=timedelta(0))
    explained = _explained(_with_rows(of_one, transactions, quarantine, look_back), progress, rules, watermark)
    of_both = matched.where("fast AND exact").withColumn("reason", F.lit(None).cast("string"))
    only = {"fast": F.col("fast") & ~F.col("exact"), "exact": F.col("exact") & ~F.col("fast")}
    counts = {"both": F.col("fast") & F.col("exact")} | {f"only_{lane}": only[lane] for lane in LANES}
    counts |= {
        f"only_{lane}_{reason}": only[lane] & (F.col("reason") == reason) for lane in LANES for reason in REASONS
    }
    return (
        of_both.unionByName(explained)
        .groupBy(*KEYS)
        .agg(
            *(F.count_if(condition).alias(name) for name, condition in counts.items()),
            F.sum(F.greatest(F.col("messages") - 1, F.lit(0))).alias("duplicates"),
            *(F.percentile("latency", F.lit(share)).alias(name) for name, share in _PERCENTILES.items()),
        )
        .select(*TABLE.column_names)
    )


def _with_rows(alerts: DataFrame, transactions: DataFrame, quarantine: DataFrame, look_back: timedelta) -> DataFrame:
    """Add ``rows``: the rows of an alert's account around it, and what is quarantined at its place.

    They have ``transaction_id, timestamp, partition, position`` and, if they are quarantined, ``reasons``.
    """
    columns = ("account_id", "transaction_id", "timestamp", *_PLACE, "reasons")
    refined = transactions.withColumn("reasons", F.lit(None).cast("array<string>")).select(*columns)
    rejected = quarantine.where("_topic IS NOT NULL").select(
        F.col("accountId").alias("account_id"),
        F.coalesce(silver.own_id(), silver.derived_id(silver.source(), silver.position())).alias("transaction_id"),
        F.col("dt").alias("timestamp"),
        F.col("_partition").alias("partition"),
        F.col("_offset").alias("position"),
        "reasons",
    )
    # A message that cannot be read has a position, but no account.
    place = F.concat_ws("/", *_PLACE)
    rows = refined.unionByName(rejected).select(
        F.coalesce("account_id", place).alias("key"),
        F.col("account_id").alias("of_account"),
        F.struct(*columns[1:]).alias("row"),
    )
    late, window = (F.make_dt_interval(secs=F.lit(time.total_seconds())) for time in (LATE, look_back))
    of_pair = F.least("small_timestamp", "timestamp") - late
    begin = F.when(_is_pair(), of_pair).otherwise(F.col("timestamp") - window)
    end = F.greatest("small_timestamp", "timestamp") + late
    is_near = (F.col("of_account") == F.col("account_id")) & F.col("row.timestamp").between(begin, end)
    keys = alerts.select(*_ALERT, *_PAIR, F.explode(F.array("account_id", place)).alias("key"))
    near = keys.join(rows, on="key").where(is_near | F.col("of_account").isNull())
    return alerts.join(near.groupBy(*_ALERT).agg(F.collect_list("row").alias("rows")), on=list(_ALERT), how="left")


def _explained(
    alerts: DataFrame, progress: DataFrame, rules: Mapping[str, timedelta], watermark: Column | None
) -> DataFrame:
    """Return alerts that one lane has, :func:`_with_rows`, with the ``reason``."""

    def has(row: Column, name: str) -> Column:
        return row["reasons"].isNull() & (row["transaction_id"] == F.col(name))

    alerts = alerts.join(progress, on="partition", how="left").withColumns(
        {
            "is_refined": _any("rows", lambda row: has(row, "transaction_id")),
            "small": F.get(F.filter("rows", lambda row: has(row, "small_transaction_id")), F.lit(0)),
            "large": F.struct("timestamp", *_PLACE),
        }
    )
    exact, waits = F.col("exact"), F.lit(False) if watermark is None else F.col("timestamp") >= watermark
    is_before = (F.col("position") < F.col("first_position")) | ~F.array_contains("rules", F.col("rule"))
    is_foreign = ~F.col("rule").isin([*rules])
    is_behind = F.col("position") > F.coalesce("last_position", F.lit(-1))
    reason = (
        F.when(F.when(exact, is_before).otherwise(is_foreign), "not_running")
        .when(exact & is_behind, "pending")
        .when(_is_late(), "late")
        .when(_is_quarantined(), "quarantined")
        .when(~exact & (~F.col("is_refined") | waits), "pending")
        .when(F.when(_is_pair(), _is_out_of_order()).otherwise(_window_is_out_of_order()), "out_of_order")
        .when(exact & F.col("is_silent"), "not_running")
        .otherwise("unknown")
    )
    added = ("is_refined", "small", "large", "rows", *progress.columns[1:])
    return alerts.withColumn("reason", reason).drop(*added)


def _any(rows: str, condition: Callable[[Column], Column]) -> Column:
    """Return whether a condition is true for an element of an array, which may be null."""
    return F.coalesce(F.exists(rows, lambda row: F.coalesce(condition(row), F.lit(False))), F.lit(False))


def _is_pair() -> Column:
    return F.col("small_transaction_id").isNotNull()


def _is_in_window(row: Column) -> Column:
    """Return whether a row of :func:`_with_rows` is in the window of a threshold."""
    return ~_is_pair() & (row["timestamp"] <= F.col("timestamp"))


def _is_one_of_the_two(row: Column) -> Column:
    return F.array_contains(
        F.array(*(F.struct(F.col(name)["partition"], F.col(name)["position"]) for name in ("large", "small"))),
        F.struct(row["partition"], row["position"]),
    )


def _is_late() -> Column:
    """Return whether the detector has quarantined a row as late, or an earlier message was far ahead of it."""

    def is_needed(row: Column) -> Column:
        return _is_one_of_the_two(row) | _is_in_window(row)

    by_detector = _any("rows", lambda row: F.array_contains(row["reasons"], quality_rules.LATE) & is_needed(row))
    return by_detector | _is_overtaken(F.col("large")) | _is_overtaken(F.col("small"))


def _is_overtaken(transaction: Column) -> Column:
    latest = transaction["timestamp"] + F.make_dt_interval(secs=F.lit(LATE.total_seconds()))
    return _any("minutes", lambda at: (at["minute"] > latest) & (at["position"] < transaction["position"]))


def _is_quarantined() -> Column:
    """Return whether one of the two is quarantined, or a duplicate between them in the topic, or in the window."""
    duplicate = F.array(*map(F.lit, (*quality_rules.REPEATED_POSITION, quality_rules.TRANSACTION_IS_NEW)))
    is_there = _any(
        "rows",
        lambda row: (
            row["reasons"].isNotNull()
            & (
                _is_one_of_the_two(row)
                | (F.arrays_overlap(row["reasons"], duplicate) & (_lies_between(row) | _is_in_window(row)))
            )
        ),
    )
    # The exact lane has read the large one, and therefore the small one before it, which was unreadable.
    return is_there | (~F.col("exact") & F.col("is_refined") & _is_pair() & F.col("small").isNull())


def _lies_between(row: Column) -> Column:
    """Return whether a row is between the two in the topic."""
    positions = F.col("small.position"), F.col("large.position")
    is_between = (row["position"] > F.least(*positions)) & (row["position"] < F.greatest(*positions))
    return F.coalesce((row["partition"] == F.col("large.partition")) & is_between, F.lit(False))


def _is_out_of_order() -> Column:
    """Return whether the order of time and that of the topic differ in the two, or in what is between them."""

    def time(row: Column) -> Column:
        return F.struct(row["timestamp"], row["partition"], row["position"])

    small, large = time(F.col("small")), time(F.col("large"))
    separated = _any(
        "rows",
        lambda row: (
            row["reasons"].isNull()
            & (_lies_between(row) != ((time(row) > F.least(small, large)) & (time(row) < F.greatest(small, large))))
        ),
    )
    is_reversed = (F.col("small.position") > F.col("position")) != (F.col("small_timestamp") > F.col("timestamp"))
    return separated | is_reversed | (F.col("small.partition") != F.col("partition"))


def _window_is_out_of_order() -> Column:
    """Return whether a row of a threshold's account is in its window and after it in the topic, or the other way."""
    large = F.col("large")

    def is_displaced(row: Column) -> Column:
        is_earlier, is_before = (row[name] <= large[name] for name in ("timestamp", "position"))
        return row["reasons"].isNull() & ((row["partition"] != large["partition"]) | (is_earlier != is_before))

    return _any("rows", is_displaced)
