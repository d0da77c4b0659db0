"""Neighbours: joins each row of a stream with the rows of its account before and after it, in Kafka's order.

Two functions have the same result. :func:`by_aggregate` uses no Python and needs Spark 4.3. In a Databricks workspace,
it is not documented that an aggregate emits a row for each input row; :func:`by_processor` is documented to do so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from pyspark.sql import Row
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from fraudlake.detection import detector_stream
from fraudlake.times.calendar import MICROSECOND

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

ROW = {
    "time": "BIGINT",
    "partition": "INT",
    "offset": "BIGINT",
    "appended": "BIGINT",
    "transaction_id": "STRING",
    "amount": "DOUBLE",
    "window_time": "BIGINT",
}
"""A row: times in microseconds, its position in the topic, and ``window_time``, the event time capped near the clock.

As structs, rows are sorted by event time, then by position.
"""
_ARRAYS = {name: f"ARRAY<{kind}>" for name, kind in ROW.items()}
"""Rows as columns of arrays."""
_ORDER = ("appended", "offset", "partition")
LATENESS = timedelta(microseconds=detector_stream.GRACE)
"""How much older than the newest row a row may be: the grace period of the exact lane in the order of arrival."""
_UNUSED = timedelta(days=1)
"""How long after the span :func:`by_processor` keeps rows: longer than the lane is ever stopped."""
_ALWAYS = -(1 << 62)
"""A time before any other, in microseconds."""


def window_of(span: timedelta) -> tuple[timedelta, timedelta]:
    """Return the length of windows, and the interval between their beginnings.

    Each window continues for a span after the next one has begun, so two rows at most a span apart share a window. With
    longer windows, each row is in fewer of them, and the state has fewer.
    """
    apart = max(span, LATENESS)
    return apart + span, apart


def by_aggregate(rows: DataFrame, span: timedelta | None, count: int) -> DataFrame:
    """Find neighbours with one built-in aggregate, which keeps an account's last rows.

    In Real-time Mode (Spark 4.3, update mode) it emits a row for each input row, whereas a micro-batch emits one for
    each key. Rows are in windows, so that the watermark expires them. Two neighbours are returned only once, in the
    last window of the earlier one.

    Args:
        rows: ``account_id, window_time`` with a watermark, and ``row``, a struct of :data:`ROW`.
        span: the longest relevant time between two neighbours; None: an account's last rows stay, without windows.
        count: the largest number of an account's rows in a window, which are the last ones.

    Returns:
        ``account_id, before, current, after``; null if there is no such row, or another window returns it. ``rows``
        are those of the window, the latest first. For its rows from the ``window_time`` ``due_from`` on, the window
        contains the whole span before them.
    """
    aggregates = (
        # The latest first. In SQL, since the client of Databricks Connect lacks this form of the function.
        F.expr(f"max_by(row, struct({', '.join(f'row.{name}' for name in _ORDER)}), {count})").alias("rows"),
        F.last(_order(F.col("row"))).alias("arrived"),
    )
    if span is None:
        last_rows = rows.groupBy("account_id").agg(*aggregates)
        due_from = F.lit(_ALWAYS)
    else:
        length, apart = (time // MICROSECOND for time in window_of(span))
        window = F.window("window_time", f"{length} microseconds", f"{apart} microseconds")
        last_rows = rows.groupBy(window, "account_id").agg(*aggregates)
        due_from = F.unix_micros("window.start") + span // MICROSECOND

    def if_here(row: Column) -> Column:
        if span is None:
            return row
        earlier = F.least(row["window_time"], current["window_time"])
        return F.when(F.unix_micros("window.start") == earlier - F.pmod(earlier, F.lit(apart)), row)

    arrived = F.col("arrived")
    current = F.get(F.filter("rows", lambda row: _order(row) == arrived), F.lit(0))
    before = F.get(F.filter("rows", lambda row: _order(row) < arrived), F.lit(0))
    after = F.try_element_at(F.filter("rows", lambda row: _order(row) > arrived), F.lit(-1))
    return last_rows.select(
        "account_id",
        if_here(before).alias("before"),
        current.alias("current"),
        if_here(after).alias("after"),
        "rows",
        due_from.alias("due_from"),
    )


def by_processor(rows: DataFrame, span: timedelta | None, count: int) -> DataFrame:
    """Find neighbours with a processor in Python, which Databricks' real-time mode calls row by row.

    Args and returns: as :func:`by_aggregate`. The state keeps rows that are older than their account's newest by at
    most the lateness and two spans. It drops them after a span and a day of processing time without a new row.
    """
    # No structs, since versions of Spark differ in how processors get and return them.
    processed = (
        rows.select("account_id", "row.*")
        .groupBy("account_id")
        .transformWithState(
            statefulProcessor=_LastRows(span, count),
            outputStructType=_schema({"account_id": "STRING"} | _ARRAYS | {"number": "INT"}),
            outputMode="Update",
            timeMode="ProcessingTime",
        )
    )
    last_rows = processed.select("account_id", "number", F.arrays_zip(*ROW).alias("rows"))
    latest = F.array_max(F.transform("rows", lambda row: row["window_time"]))
    number = F.col("number")
    return last_rows.select(
        "account_id",
        *(F.get("rows", number + step).alias(name) for name, step in (("before", 1), ("current", 0), ("after", -1))),
        "rows",
        (F.lit(_ALWAYS) if span is None else latest - (LATENESS + span) // MICROSECOND).alias("due_from"),
    )


class _LastRows(StatefulProcessor):
    """Keeps an account's last rows in Kafka's order."""

    def __init__(self, span: timedelta | None, count: int) -> None:
        """Keep ``count`` rows, and none that is older than the newest by the lateness and two spans."""
        self._count = count
        self._age = None if span is None else (LATENESS + 2 * span) // MICROSECOND
        self._unused = None if span is None else (span + _UNUSED) // timedelta(milliseconds=1)

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the state."""
        self._state = handle.getValueState("rows", _schema(_ARRAYS), self._unused)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        """Yield each row with its account's last rows, the latest first, and its index among them."""
        last = [*zip(*(self._state.get() or ()), strict=True)]
        # A micro-batch has many rows, in no order.
        for row in sorted((tuple(fields[name] for name in ROW) for fields in rows), key=_order_of):
            last = self._recent(sorted([*last, row], key=_order_of, reverse=True))
            if row in last:
                yield Row("account_id", *_ARRAYS, "number")(key[0], *_columns(last), last.index(row))
        self._state.update(_columns(last))

    def _recent(self, rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        times = [row[-1] for row in rows]
        recent = [row for row in rows if self._age is None or row[-1] > max(times) - self._age]
        return recent[: self._count]

    def close(self) -> None:
        """Do nothing: no resource is open."""


def _columns(rows: list[tuple[Any, ...]]) -> tuple[list[Any], ...]:
    return tuple(map(list, zip(*rows, strict=True)))


def _order(row: Column) -> Column:
    return F.struct(*(row[name] for name in _ORDER))


def _order_of(row: tuple[Any, ...]) -> tuple[Any, ...]:
    named = dict(zip(ROW, row, strict=True))
    return tuple(named[name] for name in _ORDER)


def _schema(columns: Mapping[str, str]) -> str:
    return ", ".join(f"`{name}` {kind}" for name, kind in columns.items())
