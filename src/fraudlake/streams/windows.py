"""Windows: transactions and alerts become ``gold_alert_windows``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from fraudlake import tables
from fraudlake.gold import alert_windows
from fraudlake.gold.alert_windows import AGGREGATE
from fraudlake.lake.rows import persisted
from fraudlake.streams import refresh
from fraudlake.streams.stream import Stream
from fraudlake.streams.watermark import watermark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from fraudlake.lake import Lake


def stream(lake: Lake) -> Stream:
    """``silver_transactions`` and ``silver_alerts`` → ``gold_alert_windows``."""

    def write(lake: Lake, batch: DataFrame, batch_id: int) -> None:
        recompute(lake, refresh.of_whole_days(lake, batch))

    return Stream(AGGREGATE.step, refresh.touched(lake, AGGREGATE), write, reads=AGGREGATE.sources)


def recompute(lake: Lake, touched: DataFrame) -> None:
    """Compute the windows again that transactions and alerts belong to, and all windows after them.

    Args:
        lake: the lake, in the session of ``touched``.
        touched: ``account_id, timestamp`` of transactions and alerts that came or went; perhaps none.
    """
    current = lake.read(AGGREGATE.table)
    with persisted(alert_windows.scope(touched, current), eager=False) as scope:
        earliest = scope.selectExpr("unix_micros(min(touched_from))", "unix_micros(min(read_from))").collect()[0]
        if earliest[0] is None:
            return
        touched_from, read_from = (F.timestamp_micros(F.lit(time)) for time in earliest)
        reached = watermark(lake)
        transactions = lake.read(tables.SILVER_TRANSACTIONS).where(F.col("date") >= F.to_date(read_from))
        alerts = lake.read(tables.SILVER_ALERTS).where(F.col("timestamp") >= read_from)
        recomputed = alert_windows.alert_windows(transactions, alerts, scope, reached)
        # The condition compares with a literal, so Delta skips files in which all windows are closed and untouched.
        may_change = current.where((F.col("window_end") >= touched_from) | (F.col("state") == "open"))
        changes = alert_windows.changes(recomputed, may_change, scope, reached)
        lake.apply_changes(changes, AGGREGATE.table, AGGREGATE.keys)
