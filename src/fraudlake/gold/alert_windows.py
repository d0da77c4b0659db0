"""Alert windows: transactions and alerts become figures of each account by tumbling, sliding, session and count window.

The windows are those of Flink's keyed streams: tumbling, sliding and session windows in event time, and count windows.
A window is in the table from its first transaction on. Every later transaction changes it, however late. Its `state` is
`closed` once the watermark has passed it: from then on only a late row can change it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from fraudlake.gold.aggregate import Aggregate
from fraudlake.tables import SILVER_ALERTS, SILVER_TRANSACTIONS, Table

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

KEYS = ("kind", "account_id", "number", "window_start")
# `state` is text because Delta keeps file statistics of texts and not of booleans: they let it skip the files without
# open windows.
TABLE = Table(
    "gold_alert_windows",
    "A window of an account, from its first transaction on.",
    """
    kind STRING tumbling, sliding, session or count
    account_id STRING account
    number BIGINT number of a count window of the account, from 1; null for other kinds
    window_start TIMESTAMP beginning (UTC), inclusive
    window_end TIMESTAMP end (UTC)
    transactions BIGINT number of transactions
    amount_sum DOUBLE sum of their amounts, in account currency
    amount_max DOUBLE largest amount, in account currency
    alerts BIGINT alerts
    state STRING open, or closed once the watermark has passed the window
    date DATE date (UTC) of window_start
    """,
    partitioned_by=("kind", "date"),
    zorder=("account_id",),
)
AGGREGATE = Aggregate(
    TABLE,
    KEYS,
    {
        SILVER_TRANSACTIONS: ("account_id", "timestamp", "date"),
        SILVER_ALERTS: ("account_id", "timestamp", "to_date(timestamp) AS date"),
    },
)
ROWS_COUNTED = 100
"""Transactions of an account in a count window."""

_MINUTE = 60_000_000  # microseconds
_SIZE, _SLIDE, _GAP = 60 * _MINUTE, 10 * _MINUTE, 30 * _MINUTE


def scope(touched: DataFrame, current: DataFrame) -> DataFrame:
    """Return the time from which the windows of each touched account must be recomputed.

    All windows that follow an account's earliest new row may change: sessions merge, and count windows shift. Windows
    before it do not change. So it is enough to read from the start of the windows that this row falls into.

    Args:
        touched: ``account_id, timestamp`` of new transactions and alerts.
        current: the present ``gold_alert_windows``.

    Returns:
        One row an account: ``account_id``; ``touched_from``, the earliest new event time; ``session_from`` and
        ``count_from``, the event times from which its sessions and count windows are computed; ``first_number``, the
        number of the count window that begins there; ``read_from``, the earliest of them all.
    """
    earliest = touched.groupBy("account_id").agg(F.min("timestamp").alias("touched_from"))
    # Rows of the same time may be in two neighbouring count windows: begin at a border where the times differ.
    end_before = F.lag("window_end").over(Window.partitionBy("account_id", "kind").orderBy("number"))
    is_border = (F.col("kind") == "count") & F.coalesce(end_before < F.col("window_start"), F.lit(True))
    begins_before = is_border & (F.col("window_start") < F.col("touched_from"))
    # A gap of exactly half an hour does not split a session, in Flink as in Spark.
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
    """Compute the windows of the accounts in ``scope``, each from its start there.

    Args:
        transactions: ``silver_transactions``.
        alerts: ``silver_alerts``; an alert counts in the windows of its large transaction.
        scope: see :func:`scope`.
        watermark: event time; only late rows are before it.

    Returns:
        The columns of ``gold_alert_windows``; amounts in account currency.
    """
    alerted = alerts.groupBy("transaction_id").agg(F.count("*").alias("alerts"))
    rows = (
        transactions.select("transaction_id", "account_id", "timestamp", "amount", "source", "position")
        .join(F.broadcast(scope), on="account_id", how="inner")
        .where("timestamp >= read_from")
        .join(alerted, on="transaction_id", how="left")
    )
    in_order = Window.partitionBy("account_id").orderBy("timestamp", "source", "position")
    so_far = in_order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    before = F.lag("timestamp").over(in_order)
    continues = (before >= F.col("session_from")) & (F.unix_micros("timestamp") - F.unix_micros(before) <= _GAP)
    is_session_start = (F.col("timestamp") >= F.col("session_from")) & ~F.coalesce(continues, F.lit(False))
    in_count_windows = F.count_if(F.col("timestamp") >= F.col("count_from"))
    # Each row lists the windows that it is in, so one exchange by account serves all kinds of windows.
    with_windows = rows.withColumn("begins", F.when(is_session_start, F.col("timestamp"))).withColumn(
        "windows",
        F.array(
            _window("tumbling", _floor("timestamp", _SIZE)),
            *(_window("sliding", _floor("timestamp", _SLIDE, back)) for back in range(0, _SIZE, _SLIDE)),
            _window("session", F.last("begins", ignorenulls=True).over(so_far)),
            _window("count", None, F.col("first_number") + F.floor((in_count_windows.over(so_far) - 1) / ROWS_COUNTED)),
        ),
    )
    is_in_scope = (
        F.when(F.col("kind") == "session", F.col("begin") >= F.col("session_from"))
        .when(F.col("kind") == "count", F.col("timestamp") >= F.col("count_from"))
        .otherwise(_plus("begin", _SIZE) > F.col("touched_from"))
    )
    end = F.when(F.col("kind") == "count", F.col("last")).when(F.col("kind") == "session", _plus("last", _GAP))
    return (
        with_windows.select("*", F.inline("windows"))
        .where(is_in_scope)
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
    """Return whether the watermark has passed a window, so that only a late row can change it.

    The end of a tumbling, sliding or session window is exclusive. The end of a count window is the time of its last
    transaction.
    """
    full = (F.col("transactions") == ROWS_COUNTED) & (F.col("window_end") < watermark)
    return F.when(F.col("kind") == "count", full).otherwise(F.col("window_end") <= watermark)


def changes(recomputed: DataFrame, current: DataFrame, scope: DataFrame, watermark: Column) -> DataFrame:
    """Return the changes to make in ``gold_alert_windows``.

    Args:
        recomputed: the recomputed windows, see :func:`alert_windows`.
        current: the present ``gold_alert_windows``.
        scope: see :func:`scope`.
        watermark: event time; only late rows are before it.

    Returns:
        The columns of ``gold_alert_windows`` and ``gone``: true for a window that no longer exists, as when a late row
        merges two sessions. The rows are the recomputed windows, and open windows that the watermark has passed now.
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
    columns = [name for name in current.columns if name != "state"]
    return (
        recomputed.alias("new")
        .join(old.alias("old"), on=same, how="full_outer")
        .select(
            *(F.when(is_new, F.col(f"new.{name}")).otherwise(F.col(f"old.{name}")).alias(name) for name in columns),
            F.when(is_new, F.col("new.state")).otherwise("closed").alias("state"),
            (~is_new & F.col("in_scope")).alias("gone"),
        )
    )
