"""Features: each transaction, with what its account did just before it, for training and for scoring alike."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark.sql import functions as F

from fraudlake.silver import buckets, ordering

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from fraudlake.settings import Settings

NAMES = ("amount", "hour_of_day", "previous_amount", "seconds_since_previous")
"""What a model sees of a transaction."""

MEMORY_SECONDS = 86_400.0
"""What an account did longer ago than a day is forgotten: it counts as if there had been nothing."""

_ROWS = pa.schema(
    [
        ("account", pa.int64()),
        ("time", pa.int64()),
        ("amount", pa.float64()),
        ("source", pa.dictionary(pa.int32(), pa.string())),
        ("position", pa.int64()),
        ("account_id", pa.string()),
        ("transaction_id", pa.string()),
        ("label", pa.bool_()),
    ]
)
_MEMORY = pa.schema([("account", pa.int64()), ("time", pa.int64()), ("amount", pa.float64())])
_OUT = """transaction_id STRING, account_id STRING, time BIGINT, label BOOLEAN,
 amount DOUBLE, hour_of_day DOUBLE, previous_amount DOUBLE, seconds_since_previous DOUBLE"""


def compute(memory: pa.Table, rows: pa.Table) -> tuple[pd.DataFrame, pa.Table]:
    """Compute the features of a bucket's rows; each sees only what comes before it.

    Args:
        memory: the last transaction of each account: ``account``, ``time`` (microseconds), ``amount``.
        rows: the bucket's new transactions.

    Returns:
        ``transaction_id, account_id, time, label`` and :data:`NAMES`, and the memory for the next rows. Without a
        transaction in the day before, ``previous_amount`` is 0 and ``seconds_since_previous`` a day.
    """
    order = ordering.behind(memory, rows)
    account, time, amount = (
        np.concatenate([memory[name].to_numpy(), rows[name].to_numpy()])[order] for name in _MEMORY.names
    )
    is_new = order >= len(memory)
    seconds = np.full(len(order), np.inf)
    previous = np.zeros(len(order))
    if len(order):
        follows = np.flatnonzero(account[1:] == account[:-1]) + 1
        seconds[follows] = (time[follows] - time[follows - 1]) / 1e6
        previous[follows] = amount[follows - 1]
    remembered = seconds <= MEMORY_SECONDS

    names = rows.select(["transaction_id", "account_id", "label"]).take(pa.array(order[is_new] - len(memory)))
    frame = names.to_pandas()
    frame["time"], frame["amount"] = time[is_new], amount[is_new]
    frame["hour_of_day"] = (time[is_new] // 3_600_000_000 % 24).astype(float)
    frame["previous_amount"] = np.where(remembered, previous, 0.0)[is_new]
    frame["seconds_since_previous"] = np.where(remembered, seconds, MEMORY_SECONDS)[is_new]

    last = np.append(account[1:] != account[:-1], True) if len(order) else np.zeros(0, bool)
    if len(rows):
        last &= time >= ordering.clock(rows) - MEMORY_SECONDS * 1e6
    kept = pa.table([account[last], time[last], amount[last]], schema=_MEMORY)
    return frame, kept


def of_history(silver: DataFrame, settings: Settings) -> DataFrame:
    """Compute the features of a whole table, in event-time order.

    Returns:
        ``transaction_id, account_id, timestamp (UTC), label, date`` and :data:`NAMES`.
    """

    def whole(frame: pd.DataFrame) -> pd.DataFrame:
        return compute(_MEMORY.empty_table(), buckets.unpack(frame["payload"], _ROWS))[0]

    return _named(_packed(silver, settings).groupBy("bucket").applyInPandas(whole, _OUT))


def of_stream(silver: DataFrame, settings: Settings) -> DataFrame:
    """Compute the features of a stream, in the order of arrival; columns as :func:`of_history`."""
    processor = buckets.BucketProcessor(_MEMORY, _ROWS, compute)
    packed = _packed(silver, settings).groupBy("bucket")
    return _named(packed.transformWithStateInPandas(processor, _OUT, "Append", "None"))


def _packed(silver: DataFrame, settings: Settings) -> DataFrame:
    rows = silver.select(
        F.xxhash64("account_id").alias("account"),
        F.unix_micros("timestamp").alias("time"),
        "amount",
        "source",
        "position",
        "account_id",
        "transaction_id",
        "label",
    )
    return buckets.pack(rows, _ROWS, settings.buckets)


def _named(found: DataFrame) -> DataFrame:
    timestamp = F.timestamp_micros("time")
    return found.select(
        "transaction_id",
        "account_id",
        timestamp.alias("timestamp"),
        "label",
        *NAMES,
        F.to_date(timestamp).alias("date"),
    )
