"""Silver alerts: the stateful detector turns the stream of valid transactions into alerts."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from fraudlake.detection import buckets, detector, ordering
from fraudlake.silver import clock

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from fraudlake.settings import Settings

GRACE_SECONDS = 600
"""Grace period in the order of arrival: how long, in event time, an expired flag stays open for rows out of order."""

_OUTPUT = pa.schema(
    [
        ("rule", pa.string()),  # null for a row that came too late
        ("account_id", pa.string()),
        ("transaction_id", pa.string()),
        ("time", pa.int64()),
        ("amount", pa.float64()),
        ("small_transaction_id", pa.string()),
        ("small_time", pa.int64()),
        ("small_amount", pa.float64()),
        ("label", pa.bool_()),
        ("source", pa.string()),
        ("position", pa.int64()),
    ]
)


def detector_output(silver: DataFrame, settings: Settings) -> DataFrame:
    """Run the detector over a stream, in the order that ``settings.ordering`` names.

    Args:
        silver: a stream of ``silver_transactions``.
        settings: the fraud rules, the order, how late a row may be, and the number of buckets.

    Returns:
        A stream of alerts and of rows that came too late: :func:`alerts` and :func:`late` select from it.
    """
    limits, in_event_time = detector.Limits.of(settings.active_rules), settings.ordering == "event_time"
    if in_event_time:
        bound = math.ceil(settings.max_out_of_orderness / timedelta(milliseconds=1))
        silver = silver.withWatermark("timestamp", f"{bound} milliseconds")
    packed = buckets.pack(_columns(silver, limits, in_event_time), detector.ROWS, settings.buckets).groupBy("bucket")
    schema = from_arrow_schema(_OUTPUT)
    if in_event_time:
        timed = buckets.TimedBucketProcessor(detector.FLAGS, detector.ROWS, _in_event_time(limits, bound))
        return packed.transformWithStateInPandas(timed, schema, "Append", "EventTime")
    processor = buckets.BucketProcessor(detector.FLAGS, detector.ROWS, _as_they_arrive(limits))
    return packed.transformWithStateInPandas(processor, schema, "Append", "None")


def alerts(detector_output: DataFrame) -> DataFrame:
    """Return the alerts in the columns of ``silver_alerts``: times in UTC, ``seconds_between`` in event time."""
    time, seconds = F.timestamp_micros("time"), (F.col("time") - F.col("small_time")) / 1_000_000
    return detector_output.where(F.col("rule").isNotNull()).select(
        alert_id("rule", "small_transaction_id", "transaction_id").alias("alert_id"),
        "rule",
        "account_id",
        "transaction_id",
        time.alias("timestamp"),
        "amount",
        "small_transaction_id",
        F.timestamp_micros("small_time").alias("small_timestamp"),
        "small_amount",
        seconds.alias("seconds_between"),
        F.format_string(
            "Account %s paid %.2f and, %s s later, %.2f at %s UTC: a small payment to test the card, then a large one.",
            "account_id",
            "small_amount",
            F.regexp_replace(F.format_string("%.3f", seconds), r"\.?0+$", ""),
            "amount",
            F.date_format(time, "yyyy-MM-dd HH:mm:ss"),
        ).alias("explanation"),
        clock.now().alias("detected_at"),
    )


def alert_id(rule: str, first: str, second: str) -> Column:
    """Make an id from a rule's name and two transactions' ids, all given as columns' names.

    The three are joined by ``|``. Where a producer's id holds that, the first id's length says where it ends.
    """
    length = F.when(F.concat(first, second).contains("|"), F.length(first))
    return F.sha2(F.concat_ws("|", rule, length.cast("string"), first, second), 256).substr(1, 32)


def late(detector_output: DataFrame) -> DataFrame:
    """Return the rows too late for event-time order: ``dt, accountId, amount, alert, source, position, reasons``."""
    return detector_output.where(F.col("rule").isNull()).select(
        F.timestamp_micros("time").alias("dt"),
        F.col("account_id").alias("accountId"),
        "amount",
        F.col("label").alias("alert"),
        "source",
        "position",
        F.array(F.lit("late")).alias("reasons"),
    )


def _columns(silver: DataFrame, limits: detector.Limits, in_event_time: bool) -> DataFrame:
    """Select the detector's columns. A value that no output can need is sent as null, which saves space."""
    amount = F.col("amount")
    candidate = (amount < max(limits.small_below)) | (amount > min(limits.large_above))
    may_be_late = F.lit(in_event_time)
    return silver.select(
        F.xxhash64("account_id").alias("account"),
        F.unix_micros("timestamp").alias("time"),
        "amount",
        "source",
        "position",
        F.when(candidate | may_be_late, F.col("account_id")).alias("account_id"),
        F.when(candidate, F.col("transaction_id")).alias("transaction_id"),
        F.when(may_be_late, F.col("label")).alias("label"),
    )


def _as_they_arrive(limits: detector.Limits) -> buckets.Step:
    grace = detector.microseconds(GRACE_SECONDS)

    def step(flags: pa.Table, rows: pa.Table) -> tuple[pd.DataFrame, pa.Table]:
        pairs, open_flags = detector.detect(flags, rows, limits, ordering.clock(rows) - grace)
        return _frame(_alert_rows(pairs, limits.names)), open_flags

    return step


def _in_event_time(limits: detector.Limits, bound_milliseconds: int) -> buckets.TimedStep:
    bound = bound_milliseconds * 1000

    def step(
        flags: pa.Table, waiting: pa.Table, rows: pa.Table, watermark: int
    ) -> tuple[pd.DataFrame, pa.Table, pa.Table]:
        split = detector.split_by_watermark(waiting, rows, watermark, bound)
        pairs, open_flags = detector.detect(flags, split.ready, limits, split.ready_before)
        output = pa.concat_tables([_alert_rows(pairs, limits.names), _late_rows(split.late)])
        return _frame(output), open_flags, split.waiting

    return step


def _alert_rows(pairs: detector.AlertPairs, names: tuple[str, ...]) -> pa.Table:
    large, small = (pairs.candidates.take(pa.array(numbers)) for numbers in (pairs.large, pairs.small))
    return _output_table(
        len(pairs.rule),
        rule=pa.array(np.array(names)[pairs.rule]),
        **{name: large[name] for name in ("account_id", "transaction_id", "time", "amount")},
        small_transaction_id=small["transaction_id"],
        small_time=small["time"],
        small_amount=small["amount"],
    )


def _late_rows(rows: pa.Table) -> pa.Table:
    columns = {name: rows[name] for name in ("account_id", "time", "amount", "label", "position")}
    return _output_table(len(rows), **columns, source=rows["source"].cast(pa.string()))


def _output_table(rows: int, **columns: pa.Array) -> pa.Table:
    """Make a table of :data:`_OUTPUT` from some of its columns; the others are null."""
    return pa.table([columns.get(field.name, pa.nulls(rows, field.type)) for field in _OUTPUT], schema=_OUTPUT)


def _frame(output: pa.Table) -> pd.DataFrame:
    # Without nullable types, pandas turns a column of integers and nulls into floats.
    nullable = {pa.int64(): pd.Int64Dtype(), pa.bool_(): pd.BooleanDtype()}
    frame: pd.DataFrame = output.to_pandas(types_mapper=nullable.get)
    return frame
