"""Buckets: packs rows into an Arrow slice per bucket of accounts, so that state costs one call per bucket, not per row.

PySpark hands a stateful processor each row as a Python tuple (seen in 4.2). A slice is a single binary value: it passes
the exchange unchanged, and the processor opens it as arrays.

Other entities have buckets, too: the account is entity 0, and the numbers of the buckets of entity 1 follow its own.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from fraudlake.arrays import to_bytes

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import Column, DataFrame

PACKED = "bucket INT, payload BINARY"
SUPPLEMENTS = "bucket INT, name STRING, supplement BINARY"
"""Named payloads of further rows for the state of buckets, such as the state of new rules."""


class Key(NamedTuple):
    """A key by which rows are packed: the number of an entity, and the column with the 64-bit hash of its key."""

    entity: int
    column: str


ACCOUNT = Key(0, "account")
NUMBER = "row_number"
"""The column with the numbers of rows."""
_NUMBER_BITS = 33
"""Bits of the row numbers within a task, as in ``monotonically_increasing_id``, which streams may not call."""


def key_hash(columns: Sequence[str]) -> Column:
    """Return the hash of a key of some columns; null if one of them is null: such a row has no key."""
    return F.when(functools.reduce(operator.and_, map(F.isnotnull, columns)), F.xxhash64(*columns))


def entity_of(bucket: int, buckets: int) -> int:
    """Return the number of the entity of a bucket; ``buckets`` is the number of buckets per entity."""
    return bucket // buckets


def pack(
    rows: DataFrame,
    schema: pa.Schema,
    buckets: int,
    every: Collection[int] = (),
    keys: Sequence[Key] = (ACCOUNT,),
    numbered: bool = False,
) -> DataFrame:
    """Pack rows by bucket, once for each entity.

    Args:
        rows: the columns of ``schema``, of which one is ``account``, and those of ``keys``.
        schema: the Arrow schema of the packed rows, which :func:`unpack` returns. ``account`` is the hash of the key:
            its remainder by ``buckets`` is the bucket within those of the entity.
        buckets: the number of buckets of an entity.
        every: the entities each of whose buckets gets a null payload first, so that all are processed.
        keys: the keys by which rows are packed. A row whose hash is null is left out for that entity.
        numbered: add the column :data:`NUMBER`, a unique number by which the parts of a row that are computed for
            different entities are joined again.

    Returns:
        ``bucket, payload``: from each Arrow batch of the input, one row for each bucket that has rows in it.
    """

    def split(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = TaskContext.get()
        begin = (task.partitionId() if task else 0) << _NUMBER_BITS
        for batch in batches:
            if numbered and batch.num_rows:
                numbers = pa.array(np.arange(begin, begin + batch.num_rows))
                begin += batch.num_rows
                columns = [*batch.columns[: len(schema)], numbers, *batch.columns[len(schema) :]]
                names = [*schema.names, NUMBER, *batch.schema.names[len(schema) :]]
                batch = pa.RecordBatch.from_arrays(columns, names)
            if batch.num_rows:
                yield packed_batch(batch, packed_schema, buckets, keys)

    def with_every(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield _packed([(entity * buckets + bucket, None) for entity in every for bucket in range(buckets)])
        yield from batches

    packed_schema = schema.append(pa.field(NUMBER, pa.int64())) if numbered else schema
    hashes = [key.column for key in keys if key.column not in schema.names]
    packed = rows.select(*schema.names, *hashes).mapInArrow(split, PACKED)
    # A micro-batch that only moves the watermark has no partition, so no task: the exchange makes one.
    return packed.repartition(1).mapInArrow(with_every, PACKED) if every else packed


def packed_batch(batch: pa.RecordBatch, schema: pa.Schema, buckets: int, keys: Sequence[Key]) -> pa.RecordBatch:
    """Pack an Arrow batch as :func:`pack` does; its first columns are those of ``schema``."""
    columns = [
        column.dictionary_encode() if pa.types.is_dictionary(field.type) else column
        for field, column in zip(schema, batch.columns, strict=False)
    ]
    rows = pa.RecordBatch.from_arrays(columns, schema=schema)
    return _packed(
        [
            (key.entity * buckets + bucket, to_bytes(part))
            for key in keys
            for bucket, part in _by_bucket(rows, batch.column(key.column), buckets)
        ]
    )


def _by_bucket(rows: pa.RecordBatch, hashes: pa.Array, buckets: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the rows of each bucket that has any; their ``account`` is the hash."""
    if hashes.null_count:
        has_key = hashes.is_valid()
        rows = rows.filter(has_key)
        hashes = hashes.filter(has_key)
    if not len(hashes):
        return
    rows = rows.set_column(rows.schema.get_field_index("account"), rows.schema.field("account"), hashes)
    # 16 bits hold every bucket number, and numpy sorts 16-bit integers by radix.
    bucket = (hashes.to_numpy().view(np.uint64) % np.uint64(buckets)).astype(np.uint16)
    order = np.argsort(bucket, kind="stable")
    start = np.flatnonzero(np.diff(bucket[order], prepend=-1))
    ordered = rows.take(pa.array(order))
    for begin, end in zip(start.tolist(), np.append(start[1:], len(order)).tolist(), strict=True):
        yield int(bucket[order[begin]]), ordered.slice(begin, end - begin)


def supplemented(packed: DataFrame, supplements: DataFrame | None) -> DataFrame:
    """Add supplements to the packed rows of a stream; they travel from task to task, never through a closure.

    A closure of more than 1 MB becomes a broadcast, which the process that asks a processor for its schema does not
    load (seen in Spark 4.2). All payloads of a bucket are joined, but only the null one matches supplements. So both
    sides are partitioned by bucket only once, like the state.

    Args:
        packed: from :func:`pack`, with a null payload for each bucket that may have supplements.
        supplements: :data:`SUPPLEMENTS`, a static frame.
    """
    if supplements is None:
        return packed
    others = supplements.select(F.col("bucket").alias("_bucket"), "name", "supplement").hint("merge")
    is_of = (F.col("bucket") == F.col("_bucket")) & F.col("payload").isNull()
    return packed.join(others, on=is_of, how="left").drop("_bucket")


def for_every(rows: DataFrame, name: str, entities: Collection[int], buckets: int) -> DataFrame:
    """Return the rows as a supplement for each bucket of the entities, which are given by their numbers."""

    def whole(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        parts = [batch for batch in batches if batch.num_rows]
        if parts:
            payload = to_bytes(pa.Table.from_batches(parts).combine_chunks())
            yield pa.RecordBatch.from_arrays([pa.array([payload], pa.binary())], ["supplement"])

    packed = rows.repartition(1).mapInArrow(whole, "supplement BINARY")
    of_entity = packed.select(F.explode(F.array(*map(F.lit, entities))).alias("entity"), "supplement")
    of_bucket = of_entity.select("*", F.explode(F.sequence(F.lit(0), F.lit(buckets - 1))).alias("number"))
    number = F.col("entity") * buckets + F.col("number")
    return of_bucket.select(number.cast("int").alias("bucket"), F.lit(name).alias("name"), "supplement")


Supplements = Mapping[str, Sequence[bytes]]
"""The payloads of a bucket's supplements, by their name."""


def divided(frames: Iterable[pd.DataFrame], schema: pa.Schema) -> tuple[pa.Table, Supplements]:
    """Separate a bucket's packed rows from its supplements."""
    payloads: list[bytes] = []
    supplements: dict[str, list[bytes]] = {}
    for frame in frames:
        payloads += [payload for payload in frame["payload"] if payload is not None]
        if "name" in frame:
            for name, supplement in zip(frame["name"], frame["supplement"], strict=True):
                if name is not None:
                    supplements.setdefault(name, []).append(supplement)
    return unpack(payloads, schema), supplements


def _packed(slices: Sequence[tuple[int, bytes | None]]) -> pa.RecordBatch:
    numbers = pa.array([number for number, _ in slices], pa.int32())
    payloads = [payload for _, payload in slices]
    return pa.RecordBatch.from_arrays([numbers, pa.array(payloads, pa.binary())], ["bucket", "payload"])


def unpack(payloads: Iterable[bytes], schema: pa.Schema) -> pa.Table:
    """Read payloads into one table, in their order."""
    tables = [pa.ipc.open_stream(payload).read_all() for payload in payloads]
    # Rows that an earlier version of the query put into the state may lack a column.
    return pa.concat_tables(tables, promote_options="default") if tables else schema.empty_table()


class _ArrowState:
    """Stores an Arrow table as one value of a bucket's state; reads it before it writes, and stores no empty table."""

    def __init__(self, handle: StatefulProcessorHandle, name: str, schema: pa.Schema) -> None:
        self._value = handle.getValueState(name, "payload BINARY")
        self._schema = schema
        self._is_stored = False
        self._stored: pa.Table | None = None

    def read(self) -> pa.Table:
        state = self._value.get()
        self._is_stored = state is not None
        self._stored = unpack([state[0]] if state else [], self._schema)
        return self._stored

    def write(self, table: pa.Table) -> None:
        if table is self._stored:
            return
        if len(table):
            self._value.update((to_bytes(table.unify_dictionaries().combine_chunks()),))
        elif self._is_stored:
            self._value.clear()


def _frame(output: pa.Table) -> pd.DataFrame:
    """Convert rows to pandas with nullable types, which keep integers with nulls from becoming floats."""
    import pandas as pd  # it takes a third of a second, and the process that begins a query has no rows

    nullable = {pa.int64(): pd.Int64Dtype(), pa.bool_(): pd.BooleanDtype()}
    frame: pd.DataFrame = output.to_pandas(types_mapper=nullable.get)
    return frame


State = dict[str, pa.Table]
"""A bucket's state: tables by name."""


class _States:
    """The tables of a bucket's state."""

    def __init__(
        self, handle: StatefulProcessorHandle, schemas: Mapping[str, pa.Schema], retired: Collection[str] = ()
    ) -> None:
        for name in retired:
            handle.deleteIfExists(name)
        self._states = {name: _ArrowState(handle, name, schema) for name, schema in schemas.items()}

    def read(self) -> State:
        return {name: state.read() for name, state in self._states.items()}

    def write(self, tables: State) -> None:
        for name, state in self._states.items():
            state.write(tables[name])


Change = Callable[[int, State, Supplements], State]
"""Takes a bucket's number, its state as it is read, and its supplements; returns the state to continue with."""


def unchanged(bucket: int, state: State, supplements: Supplements) -> State:
    """Return the state."""
    return state


def without(table: pa.Table, column: str, values: Collection[Any]) -> pa.Table:
    """Return the rows of a table whose column has none of the values."""
    return table.filter(pc.invert(pc.is_in(table[column], pa.array(list(values), table.schema.field(column).type))))


def empty(state: State) -> State:
    """Return a bucket's state with empty tables."""
    return {name: table.schema.empty_table() for name, table in state.items()}


Steps = Callable[[int, State, pa.Table], Iterator[tuple[pa.Table, State]]]
"""Takes a bucket's number, its state and its new rows; yields the output and the new state after each part of them."""


class BucketProcessor(StatefulProcessor):
    """Processes each bucket's rows as they arrive; its state is some Arrow tables."""

    def __init__(
        self,
        state: Mapping[str, pa.Schema],
        rows: pa.Schema,
        steps: Steps,
        change: Change = unchanged,
        retired: Collection[str] = (),
    ) -> None:
        """``state`` has the schema of each table of the state, ``rows`` is that of the packed rows.

        Tables of the state whose names are in ``retired`` are removed from the partitions that have rows.
        """
        self._schemas = (state, rows)
        self._steps = steps
        self._change = change
        self._retired = retired

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the state."""
        self._state = _States(handle, self._schemas[0], self._retired)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
        """Process the payloads that a micro-batch has of one bucket."""
        new, supplements = divided(rows, self._schemas[1])
        state = self._change(key[0], self._state.read(), supplements)
        if len(new):
            for output, after in self._steps(key[0], state, new):
                state = after
                if len(output):
                    yield _frame(output)
        self._state.write(state)


WAITING = "waiting"
TimedStep = Callable[[int, State, pa.Table, int], tuple[pa.Table, State]]
"""Takes a bucket's number, its state, with its waiting rows, its new rows and the watermark in microseconds; returns
the output and the new state, with the rows that still wait."""


class TimedBucketProcessor(StatefulProcessor):
    """Processes each bucket's rows in event-time order; its waiting rows are a table of its state, too.

    A timer is set to the first waiting row, so the rows are processed once the watermark of the stream has passed
    them, even if their bucket gets no new rows.
    """

    def __init__(
        self, state: Mapping[str, pa.Schema], rows: pa.Schema, step: TimedStep, change: Change = unchanged
    ) -> None:
        """``state`` has the schema of each table of the state, ``rows`` is that of the packed and the waiting rows."""
        self._schemas = ({**state, WAITING: rows}, rows)
        self._step = step
        self._change = change

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the state."""
        self._handle = handle
        self._state = _States(handle, self._schemas[0])

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
        """Process the payloads that a micro-batch has of one bucket."""
        yield from self._process(key[0], *divided(rows, self._schemas[1]), timerValues)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
        """Process the waiting rows that the watermark has passed."""
        yield from self._process(key[0], self._schemas[1].empty_table(), {}, timerValues)

    def _process(self, bucket: int, rows: pa.Table, supplements: Supplements, timers: Any) -> Iterator[pd.DataFrame]:
        watermark = timers.getCurrentWatermarkInMs() * 1000
        state = self._change(bucket, self._state.read(), supplements)
        output, state = self._step(bucket, state, rows, watermark)
        self._state.write(state)
        waiting = state[WAITING]
        for expiry in list(self._handle.listTimers()):
            self._handle.deleteTimer(expiry)
        if len(waiting):
            # A timer has whole milliseconds: this is the first one after the first waiting row.
            self._handle.registerTimer(int(waiting["time"].to_numpy().min()) // 1000 + 1)
        if len(output):
            yield _frame(output)
