"""Buckets: rows become one Arrow slice per bucket of accounts, so that state costs a call a bucket, not a row.

PySpark hands a stateful processor its rows one Python tuple each (seen in 4.2). A slice travels as a single binary
value instead, through the exchange and into the processor, which opens it as arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PACKED = "bucket INT, payload BINARY"


def pack(rows: DataFrame, schema: pa.Schema, buckets: int) -> DataFrame:
    """Pack rows by bucket.

    Args:
        rows: the columns of ``schema``, among them ``account``, a 64-bit hash: an account's bucket is its remainder.
        schema: the Arrow schema that :func:`unpack` is to give back.
        buckets: how many there are.

    Returns:
        ``bucket, payload``: a row for each bucket that an Arrow batch of the input has rows of.
    """

    def split(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if batch.num_rows == 0:
                continue
            # 16 bits are enough for every bucket, and numpy sorts them by radix.
            bucket = (batch.column("account").to_numpy().view(np.uint64) % np.uint64(buckets)).astype(np.uint16)
            order = np.argsort(bucket, kind="stable")
            start = np.flatnonzero(np.diff(bucket[order], prepend=-1))
            columns = [
                column.dictionary_encode() if pa.types.is_dictionary(field.type) else column
                for field, column in zip(schema, batch.columns, strict=True)
            ]
            ordered = pa.RecordBatch.from_arrays(columns, schema=schema).take(pa.array(order))
            payloads = [
                to_bytes(ordered.slice(begin, end - begin))
                for begin, end in zip(start, np.append(start[1:], len(order)), strict=True)
            ]
            present = pa.array(bucket[order[start]], pa.int32())
            yield pa.RecordBatch.from_arrays([present, pa.array(payloads)], ["bucket", "payload"])

    return rows.select(*schema.names).mapInArrow(split, PACKED)


def to_bytes(rows: pa.RecordBatch | pa.Table) -> bytes:
    """Serialize rows as an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write(rows)
    return bytes(sink.getvalue())


def unpack(payloads: Iterable[bytes], schema: pa.Schema) -> pa.Table:
    """Open payloads, one behind the other."""
    tables = [pa.ipc.open_stream(payload).read_all() for payload in payloads]
    return pa.concat_tables(tables) if tables else schema.empty_table()


class _ArrowState:
    """An Arrow table kept as one value of a bucket's state; an empty one is not kept at all."""

    def __init__(self, handle: StatefulProcessorHandle, name: str, schema: pa.Schema) -> None:
        self._value, self._schema = handle.getValueState(name, "payload BINARY"), schema

    def read(self) -> pa.Table:
        state = self._value.get()
        return unpack([state[0]] if state else [], self._schema)

    def write(self, table: pa.Table) -> None:
        if len(table):
            self._value.update((to_bytes(table.unify_dictionaries().combine_chunks()),))
        elif self._value.exists():
            self._value.clear()


def _unpack_frames(frames: Iterable[pd.DataFrame], schema: pa.Schema) -> pa.Table:
    return unpack((payload for frame in frames for payload in frame["payload"]), schema)


Step = Callable[[pa.Table, pa.Table], tuple[pd.DataFrame, pa.Table]]
"""Takes what a bucket kept and its new rows; returns what comes out and what to keep."""


class BucketProcessor(StatefulProcessor):
    """Takes each bucket's rows as they arrive, keeping one Arrow table of it."""

    def __init__(self, kept: pa.Schema, rows: pa.Schema, step: Step) -> None:
        """``kept`` is the schema of what is kept, ``rows`` that of the packed rows."""
        self._schemas, self._step = (kept, rows), step

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the state."""
        self._kept = _ArrowState(handle, "kept", self._schemas[0])

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
        """Take a micro-batch's payloads of one bucket."""
        out, keep = self._step(self._kept.read(), _unpack_frames(rows, self._schemas[1]))
        self._kept.write(keep)
        if len(out):
            yield out


TimedStep = Callable[[pa.Table, pa.Table, pa.Table, int], tuple[pd.DataFrame, pa.Table, pa.Table]]
"""Takes what a bucket kept, its waiting and its new rows and the watermark in microseconds; returns what comes out,
what to keep and what goes on waiting."""


class TimedBucketProcessor(StatefulProcessor):
    """Takes each bucket's rows in event-time order, keeping what waits for the watermark as a second Arrow table.

    A timer at the first waiting row brings a bucket's rows out when the stream's watermark passes, though the bucket
    itself gets no more.
    """

    def __init__(self, kept: pa.Schema, rows: pa.Schema, step: TimedStep) -> None:
        """``kept`` is the schema of what is kept, ``rows`` that of the packed rows."""
        self._schemas, self._step = (kept, rows), step

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the state."""
        self._handle = handle
        self._kept = _ArrowState(handle, "kept", self._schemas[0])
        self._waiting = _ArrowState(handle, "waiting", self._schemas[1])

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
        """Take a micro-batch's payloads of one bucket."""
        yield from self._take(_unpack_frames(rows, self._schemas[1]), timerValues)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
        """Let out what the watermark has passed."""
        yield from self._take(self._schemas[1].empty_table(), timerValues)

    def _take(self, rows: pa.Table, timers: Any) -> Iterator[pd.DataFrame]:
        watermark = timers.getCurrentWatermarkInMs() * 1000
        out, keep, wait = self._step(self._kept.read(), self._waiting.read(), rows, watermark)
        self._kept.write(keep)
        self._waiting.write(wait)
        for expiry in list(self._handle.listTimers()):
            self._handle.deleteTimer(expiry)
        if len(wait):
            # Milliseconds are what timers know: the first one in which the watermark is behind the first row.
            self._handle.registerTimer(int(wait["time"].to_numpy().min()) // 1000 + 1)
        if len(out):
            yield out
