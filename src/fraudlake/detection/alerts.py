"""Silver alerts: the stream of valid transactions goes through the stateful detector and comes out as alerts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from fraudlake.detection import buckets, detector, ordering
from fraudlake.silver import clock

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from fraudlake.settings import Settings

PATIENCE_SECONDS = 600
"""In the order of arrival: how long behind a bucket's traffic an open flag is kept for rows that come out of order."""

_FOUND = pa.schema(
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


def found(silver: DataFrame, settings: Settings) -> DataFrame:
    """Run the detector over a stream, in the order that ``settings.ordering`` names.

    Args:
        silver: a stream of ``silver_transactions``.
        settings: the rules, the order, how late a row may be, and the number of buckets.

    Returns:
        A stream of what :func:`alerts` and :func:`late` tell apart: alerts, and rows that came too late.
    """
    limits, in_event_time = detector.Limits.of(settings.active_rules), settings.ordering == "event_time"
    if in_event_time:
        bound = settings.max_out_of_orderness.total_seconds()
        silver = silver.withWatermark("timestamp", f"{bound * 1000:.0f} milliseconds")
    packed = buckets.pack(_columns(silver, limits, in_event_time), detector.ROWS, settings.buckets).groupBy("bucket")
    schema = from_arrow_schema(_FOUND)
    if in_event_time:
        timed = buckets.TimedBucketProcessor(detector.FLAGS, detector.ROWS, _in_event_time(limits, bound))
        return packed.transformWithStateInPandas(timed, schema, "Append", "EventTime")
    processor = buckets.BucketProcessor(detector.FLAGS, detector.ROWS, _as_they_arrive(limits))
    return packed.transformWithStateInPandas(processor, schema, "Append", "None")


def alerts(found: DataFrame) -> DataFrame:
    """Give the alerts in the columns of ``silver_alerts``: times in UTC, ``seconds_between`` in event time."""
    time, seconds = F.timestamp_micros("time"), (F.col("time") - F.col("small_time")) / 1_000_000
    return found.where(F.col("rule").isNotNull()).select(
        F.sha2(F.concat_ws("|", "rule", "small_transaction_id", "transaction_id"), 256).substr(1, 32).alias("alert_id"),
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


def late(found: DataFrame) -> DataFrame:
    """Give the rows that came too late for event-time order: what they hold, ``source``, ``position``, ``reasons``."""
    return found.where(F.col("rule").isNull()).select(
        F.timestamp_micros("time").alias("dt"),
        F.col("account_id").alias("accountId"),
        "amount",
        F.col("label").alias("alert"),
        "source",
        "position",
        F.array(F.lit("late")).alias("reasons"),
    )


def _columns(silver: DataFrame, limits: detector.Limits, in_event_time: bool) -> DataFrame:
    """Select what the detector wants; what nobody will ask for travels as null."""
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
    patience = detector.microseconds(PATIENCE_SECONDS)

    def step(flags: pa.Table, rows: pa.Table) -> tuple[pd.DataFrame, pa.Table]:
        hits, still_open = detector.detect(flags, rows, limits, ordering.clock(rows) - patience)
        return _frame(_pairs(hits, limits.names)), still_open

    return step


def _in_event_time(limits: detector.Limits, bound_seconds: float) -> buckets.TimedStep:
    bound = detector.microseconds(bound_seconds)

    def step(
        flags: pa.Table, waiting: pa.Table, rows: pa.Table, watermark: int
    ) -> tuple[pd.DataFrame, pa.Table, pa.Table]:
        settled = detector.settle(waiting, rows, watermark, bound)
        hits, still_open = detector.detect(flags, settled.ready, limits, settled.until)
        out = pa.concat_tables([_pairs(hits, limits.names), _too_late(settled.late)])
        return _frame(out), still_open, settled.waiting

    return step


def _pairs(hits: detector.Found, names: tuple[str, ...]) -> pa.Table:
    large, small = (hits.candidates.take(pa.array(at)) for at in (hits.large, hits.small))
    return _found_table(
        len(hits.rule),
        rule=pa.array(np.array(names)[hits.rule]),
        **{name: large[name] for name in ("account_id", "transaction_id", "time", "amount")},
        small_transaction_id=small["transaction_id"],
        small_time=small["time"],
        small_amount=small["amount"],
    )


def _too_late(rows: pa.Table) -> pa.Table:
    given = {name: rows[name] for name in ("account_id", "time", "amount", "label", "position")}
    return _found_table(len(rows), **given, source=rows["source"].cast(pa.string()))


def _found_table(rows: int, **columns: pa.Array) -> pa.Table:
    """Make a table of :data:`_FOUND` from some of its columns, the others null."""
    return pa.table([columns.get(field.name, pa.nulls(rows, field.type)) for field in _FOUND], schema=_FOUND)


def _frame(found: pa.Table) -> pd.DataFrame:
    # Nullable types: pandas would turn integers with gaps into floats.
    frame: pd.DataFrame = found.to_pandas(types_mapper={pa.int64(): pd.Int64Dtype(), pa.bool_(): pd.BooleanDtype()}.get)
    return frame
