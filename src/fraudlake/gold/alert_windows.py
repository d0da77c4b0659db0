"""Alert windows: transactions and alerts become what each account did in windows of time, of activity and of count.

The windows are those of Flink's keyed streams: tumbling, sliding and session windows in event time, and count windows.
A window is in the table from its first transaction on and changes with every later one, however late; `state` tells
whether the watermark has passed it, so that only a late row can change it still.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

KEYS = ("kind", "account_id", "number", "window_start")
ROWS_COUNTED = 100
"""Transactions of an account in a count window."""

_MINUTE = 60_000_000  # microseconds
_SIZE, _SLIDE, _GAP = 60 * _MINUTE, 10 * _MINUTE, 30 * _MINUTE


def scope(touched: DataFrame, current: DataFrame) -> DataFrame:
    """Tell from where on each touched account's windows must be computed anew.

    All that follows an account's earliest new row may change: sessions merge, and count windows shift. What lies before
    does not, so it is enough to read on from where the windows begin that the row falls into.

    Args:
        touched: ``account_id, timestamp`` of new transactions and alerts.
        current: ``gold_alert_windows`` as it is.

    Returns:
        One row an account: ``account_id``; ``touched_from``, the earliest new event time; ``session_from`` and
        ``count_from``, the event times from which its sessions and count windows are computed; ``first_number``, the
        number of the count window that begins there; ``read_from``, the earliest of them all.
    """
    earliest = touched.groupBy("account_id").agg(F.min("timestamp").alias("touched_from"))
    # Rows of one instant may lie on both sides of a border between count windows: begin at one that has none such.
    end_before = F.lag("window_end").over(Window.partitionBy("account_id", "kind").orderBy("number"))
    is_border = (F.col("kind") == "count") & F.coalesce(end_before < F.col("window_start"), F.lit(True))
    begins_before = is_border & (F.col("window_start") < F.col("touched_from"))
    # A gap of exactly half an hour does not part two sessions, in Flink as in Spark.
    reaches = (F.col("kind") == "session") & (F.col("window_end") >= F.col("touched_from"))
    known = (
        current.where("kind IN ('session', 'count')")
        .join(F.broadcast(earliest), on="account_id", how="inner")
        .select("*", begins_before.alias("begins_before"), reaches.alias("reaches"))
        .groupBy("account_id")
        .agg(
            F.min(F.when(F.col("reaches"), F.col("window_start"))).alias("session_from"),
            F.max(F.when(F.col("begins_before"), F.col("window_start"))).alias("count_from"),
            F.max(F.when(F.col("begins_before"), F.col("number"))).alias("first_number"),
        )
    )
    first_sliding = _floor("touched_from", _SLIDE, back=_SIZE - _SLIDE)
    return earliest.join(known, on="account_id", how="left").select(
        "account_id",
        "touched_from",
        F.least("session_from", "touched_from").alias("session_from"),
        F.coalesce("count_from", "touched_from").alias("count_from"),
        F.coalesce("first_number", F.lit(1)).alias("first_number"),
        F.least("session_from", "count_from", first_sliding).alias("read_from"),
    )


def alert_windows(transactions: DataFrame, alerts: DataFrame, scope: DataFrame, watermark: Column) -> DataFrame:
    """Compute the windows of accounts from their scope on.

    Args:
        transactions: ``silver_transactions``.
        alerts: ``silver_alerts``; an alert counts in the windows of its large transaction.
        scope: see :func:`scope`.
        watermark: event time that only late rows lie before.

    Returns:
        The columns of ``gold_alert_windows``; amounts in account currency.
    """
    alerted = alerts.groupBy("transaction_id").agg(F.count("*").alias("alerts"))
    rows = (
        transactions.join(F.broadcast(scope), on="account_id", how="inner")
        .where("timestamp >= read_from")
        .join(alerted, on="transaction_id", how="left")
    )
    in_order = Window.partitionBy("account_id").orderBy("timestamp", "source", "position")
    so_far = in_order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    before = F.lag("timestamp").over(in_order)
    goes_on = (before >= F.col("session_from")) & (F.unix_micros("timestamp") - F.unix_micros(before) <= _GAP)
    is_session_start = (F.col("timestamp") >= F.col("session_from")) & ~F.coalesce(goes_on, F.lit(False))
    counted = F.count_if(F.col("timestamp") >= F.col("count_from"))
    # Each row names the windows that it lies in: one exchange by account serves all kinds.
    named = rows.withColumn("begins", F.when(is_session_start, F.col("timestamp"))).withColumn(
        "windows",
        F.array(
            _window("tumbling", _floor("timestamp", _SIZE)),
            *(_window("sliding", _floor("timestamp", _SLIDE, back)) for back in range(0, _SIZE, _SLIDE)),
            _window("session", F.last("begins", ignorenulls=True).over(so_far)),
            _window("count", None, F.col("first_number") + F.floor((counted.over(so_far) - 1) / ROWS_COUNTED)),
        ),
    )
    is_anew = (
        F.when(F.col("kind") == "session", F.col("begin") >= F.col("session_from"))
        .when(F.col("kind") == "count", F.col("timestamp") >= F.col("count_from"))
        .otherwise(_plus("begin", _SIZE) > F.col("touched_from"))
    )
    end = F.when(F.col("kind") == "count", F.col("last")).when(F.col("kind") == "session", _plus("last", _GAP))
    return (
        named.select("*", F.inline("windows"))
        .where(is_anew)
        .groupBy("kind", "account_id", "number", "begin")
        .agg(
            F.min("timestamp").alias("first"),
            F.max("timestamp").alias("last"),
            F.count("*").alias("transactions"),
            F.sum("amount").alias("amount_sum"),
            F.max("amount").alias("amount_max"),
            F.coalesce(F.sum("alerts"), F.lit(0)).alias("alerts"),
        )
        .withColumn("window_start", F.coalesce("begin", "first"))
        .withColumn("window_end", end.otherwise(_plus("begin", _SIZE)))
        .withColumn("state", F.when(passed(watermark), "closed").otherwise("open"))
        .withColumn("date", F.to_date("window_start"))
        .drop("begin", "first", "last")
    )


def _window(kind: str, begin: Column | None, number: Column | None = None) -> Column:
    return F.struct(
        F.lit(kind).alias("kind"),
        (F.lit(None) if number is None else number).cast("bigint").alias("number"),
        (F.lit(None) if begin is None else begin).cast("timestamp").alias("begin"),
    )


def _floor(time: str, step: int, back: int = 0) -> Column:
    micros = F.unix_micros(F.col(time))
    return F.timestamp_micros(micros - F.pmod(micros, F.lit(step)) - back)


def _plus(time: str, micros: int) -> Column:
    return F.timestamp_micros(F.unix_micros(F.col(time)) + micros)


def passed(watermark: Column) -> Column:
    """Tell whether the watermark has passed a window: only a late row can change it.

    The end of a window of time lies behind its last instant; that of a count window is its last transaction's time.
    """
    full = (F.col("transactions") == ROWS_COUNTED) & (F.col("window_end") < watermark)
    return F.when(F.col("kind") == "count", full).otherwise(F.col("window_end") <= watermark)


def changes(anew: DataFrame, current: DataFrame, scope: DataFrame, watermark: Column) -> DataFrame:
    """Tell what must change in ``gold_alert_windows``.

    Args:
        anew: the windows computed anew, see :func:`alert_windows`.
        current: ``gold_alert_windows`` as it is.
        scope: see :func:`scope`.
        watermark: event time that only late rows lie before.

    Returns:
        The columns of ``gold_alert_windows`` and ``gone``: true for a window that is no more, as when a late row makes
        one session of two. Beside the windows computed anew, those come that the watermark has passed by now.
    """
    in_scope = (
        F.when(F.col("kind") == "session", F.col("window_start") >= F.col("session_from"))
        .when(F.col("kind") == "count", F.col("number") >= F.col("first_number"))
        .otherwise(F.col("window_end") > F.col("touched_from"))
    )
    old = (
        current.join(F.broadcast(scope), on="account_id", how="left")
        .select(current["*"], F.coalesce(in_scope, F.lit(False)).alias("in_scope"))
        .where(F.col("in_scope") | ((F.col("state") == "open") & passed(watermark)))
    )
    same = [F.col(f"old.{key}").eqNullSafe(F.col(f"new.{key}")) for key in KEYS]
    is_new = F.col("new.kind").isNotNull()
    kept = [name for name in current.columns if name != "state"]
    return (
        anew.alias("new")
        .join(old.alias("old"), on=same, how="full_outer")
        .select(
            *(F.when(is_new, F.col(f"new.{name}")).otherwise(F.col(f"old.{name}")).alias(name) for name in kept),
            F.when(is_new, F.col("new.state")).otherwise("closed").alias("state"),
            (~is_new & F.col("in_scope")).alias("gone"),
        )
    )
