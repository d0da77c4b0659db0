"""Features: figures of an account's past for each of its transactions, for training and for scoring alike.

Training and scoring share one function, :func:`compute`. It is called once for a history, and once per micro-batch for
a stream, whose state (:data:`MEMORY`) goes from call to call. The sums are of whole numbers (cents, millionths), so
they are exact and do not depend on how a history is split into micro-batches.

The state of an account is bounded. Its last minute is stored by the second, its last hour by the minute, its last day
by the hour, and everything before that as one sum; an account that pays nothing for :data:`FORGET_DAYS` is forgotten.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F

from fraudlake import tables
from fraudlake.detection import buckets, detector, ordering

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray
    from pyspark.sql import DataFrame

    from fraudlake.settings import Settings

_PREDICTIONS = {column.name: column for column in tables.GOLD_FRAUD_PREDICTIONS.fields}
NAMES = tuple(name for name, column in _PREDICTIONS.items() if column.meaning.startswith("feature:"))
"""The features of a transaction; docs/model.md defines each."""

FORGET_DAYS = 30
"""An account without a transaction for so many days counts as new."""

_DAY = 86_400
_WINDOWS = {"minute": (60, 1), "hour": (60, 60), "day": (24, 3600)}
"""The number of tiles of each window, and their length in seconds; windows begin with a tile."""
_MOST_AMOUNT = 1e9
"""The largest amount that enters a sum, in account currency, so that no sum overflows."""

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
_SUMS = ("count", "cents", "logs", "east", "north")
"""The sums: transactions, cents, logarithms of the amount, and the time of day as a point on a circle."""
MEMORY = pa.schema(
    [("account", pa.int64()), ("time", pa.int64()), ("amount", pa.float64()), *((name, pa.int64()) for name in _SUMS)]
)
"""The state: transactions of an account as tiles. A tile has the time (microseconds) and amount of its last
transaction, and the sums over all of its transactions."""
STATE = "kept"
"""The name of the state; checkpoints have it."""
_COLUMNS = [
    *(_PREDICTIONS[name] for name in ("transaction_id", "account_id", "timestamp", "label")),
    *(column for column in tables.SILVER_TRANSACTIONS.fields if column.name in ("source", "position")),
    *(_PREDICTIONS[name] for name in (*NAMES, "date")),
]
COMPUTED = tables.schema(_COLUMNS)
"""The rows of :func:`unpacked`: a transaction, its source, and :data:`NAMES`."""
_PAYLOAD = "payload BINARY"
_PAYLOAD_ROWS = 100_000
_PART_ROWS = 250_000
"""The approximate number of rows whose features are computed at once in this process."""


def compute(memory: pa.Table, rows: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Compute the features of a bucket's rows; each row sees only the rows before it.

    A row is before another if its time is earlier, or its time is the same and its ``source``, ``position`` is earlier.

    Args:
        memory: the state, :data:`MEMORY`.
        rows: the bucket's new transactions, in any order.

    Returns:
        :data:`COMPUTED` in the order of account and time, with the further columns of ``rows``; and the state for the
        next call.
    """
    order = ordering.row_order(memory, rows, by_time=True)
    known = {name: memory[name].to_numpy() for name in MEMORY.names}
    fresh = {name: rows[name].to_numpy() for name in ("account", "time", "amount")}
    fresh |= _summands(fresh["time"], fresh["amount"])
    table = {name: np.concatenate([known[name], fresh[name]])[order] for name in MEMORY.names}
    is_new = order >= len(memory)

    begins = _begins(table, is_new)
    columns: dict[str, Any] = {name: values[is_new] for name, values in _features(table, begins).items()}
    given = rows.take(pa.array(order[is_new] - len(memory)))
    columns |= {name: given[name] for name in ("transaction_id", "account_id", "label", "source", "position")}
    columns["timestamp"] = pa.array(table["time"][is_new]).cast(COMPUTED.field("timestamp").type)
    columns["date"] = columns["timestamp"].cast(pa.date32())
    computed = pa.table({name: columns[name] for name in COMPUTED.names}).cast(COMPUTED)
    for name in given.column_names:
        if name not in _ROWS.names:
            computed = computed.append_column(name, given[name])
    oldest = ordering.clock(rows) - detector.microseconds(FORGET_DAYS * _DAY) if len(rows) else None
    return computed, _remembered(table, begins, oldest)


def _summands(time: NDArray[Any], amount: NDArray[Any]) -> dict[str, NDArray[np.int64]]:
    """Return the contribution of each transaction to each of the sums."""
    cents = np.clip(amount, -_MOST_AMOUNT, _MOST_AMOUNT) * 100
    angle = time % detector.microseconds(_DAY) / detector.microseconds(_DAY) * 2 * np.pi
    return {
        "count": np.ones(len(time), np.int64),
        "cents": np.rint(cents).astype(np.int64),
        "logs": np.rint(np.log(np.maximum(cents, 1) / 100) * 1e6).astype(np.int64),
        "east": np.rint(np.cos(angle) * 1e6).astype(np.int64),
        "north": np.rint(np.sin(angle) * 1e6).astype(np.int64),
    }


def _begins(table: dict[str, NDArray[Any]], is_new: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return at which rows an account begins, or comes back after it was forgotten."""
    is_other_account = np.diff(table["account"], prepend=0) != 0
    is_other_account[:1] = True
    away = np.diff(table["time"], prepend=0) > detector.microseconds(FORGET_DAYS * _DAY)
    begins: NDArray[np.bool_] = is_other_account | (away & is_new)
    return begins


def _features(table: dict[str, NDArray[Any]], begins: NDArray[np.bool_]) -> dict[str, NDArray[Any]]:
    """Compute :data:`NAMES` of transactions that are sorted by account and time."""
    time, amount = table["time"], table["amount"]
    gap = np.diff(time, prepend=0) / 1e6
    first = np.maximum.accumulate(np.where(begins, np.arange(len(begins)), 0))
    before = {name: np.append(0, np.cumsum(table[name])) for name in _SUMS}

    def since(start: NDArray[np.int64], name: str) -> NDArray[np.int64]:
        sums: NDArray[np.int64] = before[name][:-1] - before[name][start]
        return sums

    follows = ~begins & (gap <= _DAY)
    columns = {
        "amount": amount,
        "hour_of_day": time // detector.microseconds(3600) % 24,
        "previous_amount": np.where(follows, np.roll(amount, 1), 0.0),
        "seconds_since_previous": np.where(follows, gap, _DAY),
    }
    second = time // 1_000_000
    # A number that rises with (run of an account, second).
    run, low = np.cumsum(begins), second.min(initial=0)
    span = second.max(initial=0) - low + 1
    rank = run * span + second - low
    for name, (tiles, length) in _WINDOWS.items():
        opens = np.maximum((second // length - tiles + 1) * length, low)
        start = np.maximum(np.searchsorted(rank, run * span + opens - low), first)
        columns |= {f"count_{name}": since(start, "count"), f"sum_{name}": since(start, "cents") / 100}
    # The usual value is the mean over all transactions so far, the current included: an account's first is usual.
    own = _summands(time, amount)
    count = since(first, "count") + 1
    logs, east, north = (since(first, name) + own[name] for name in ("logs", "east", "north"))
    columns["amount_to_usual"] = np.exp((own["logs"] - logs / count) / 1e6)
    turn = np.arctan2(own["north"], own["east"]) - np.arctan2(north, east)
    columns["hours_from_usual"] = np.abs((turn + np.pi) % (2 * np.pi) - np.pi) * 12 / np.pi
    return columns


def _remembered(table: dict[str, NDArray[Any]], begins: NDArray[np.bool_], oldest: int | None) -> pa.Table:
    """Merge tiles as far as an account's next transaction allows; forget accounts last seen before ``oldest``."""
    account = table["account"]
    is_last = np.diff(account, append=0) != 0
    is_last[-1:] = True
    lasts = np.flatnonzero(is_last)
    last = lasts[np.cumsum(is_last) - is_last]
    begun = np.maximum.accumulate(np.where(begins, np.arange(len(begins)), 0))
    is_remembered = begun == begun[last]
    if oldest is not None:
        is_remembered &= table["time"][last] >= oldest

    second = table["time"] // 1_000_000
    # Length of the tile that a row goes into; 0: the sum of everything before the last day.
    length = np.zeros(len(account), np.int64)
    for tiles, size in reversed(_WINDOWS.values()):
        length[second >= (second[last] // size - tiles + 1) * size] = size
    tile = second // np.maximum(length, 1) * (length > 0)
    at = np.flatnonzero(is_remembered)
    if not len(at):
        return MEMORY.empty_table()
    opens = np.any([np.diff(key[at], prepend=key[at[0]] - 1) != 0 for key in (account, length, tile)], axis=0)
    start = np.flatnonzero(opens)
    end = at[np.append(start[1:], len(at)) - 1]
    merged = {name: table[name][end] for name in ("account", "time", "amount")}
    merged |= {name: np.add.reduceat(table[name][at], start) for name in _SUMS}
    return pa.table([merged[name] for name in MEMORY.names], schema=MEMORY)


def of_history(
    silver: DataFrame,
    settings: Settings,
    extra: Sequence[pa.Field] = (),
    select: Callable[[pa.Table], pa.Table] = lambda computed: computed,
) -> DataFrame:
    """Compute the features of a whole table, in event-time order.

    Args:
        silver: the transactions.
        settings: the settings of the lake.
        extra: further columns of ``silver`` to carry along with the features.
        select: maps a bucket's computed rows to the rows that are returned.

    Returns:
        ``payload``: the packed rows that ``select`` returned, by default :data:`COMPUTED`.
    """
    schema = pa.schema([*_ROWS, *extra])

    def computed_payloads(frame: pd.DataFrame) -> pd.DataFrame:
        computed, _ = compute(MEMORY.empty_table(), buckets.unpack(frame["payload"], schema))
        payloads: pd.DataFrame = _payloads(select(computed)).to_pandas()
        return payloads

    return _packed(silver, settings, schema).groupBy("bucket").applyInPandas(computed_payloads, _PAYLOAD)


def of_table(
    silver: pa.Table, extra: Sequence[pa.Field], select: Callable[[pa.Table], pa.Table], schema: pa.Schema
) -> pa.Table:
    """Compute the features of a whole table in this process; bit by bit those of :func:`of_history`.

    Spark takes longer to start and to compile than to compute the features of a million rows.

    Args:
        silver: the transactions.
        extra: further columns of ``silver`` to carry along with the features.
        select: maps computed rows to the rows that are returned.
        schema: the columns that ``select`` returns.

    Returns:
        The rows that ``select`` returned, by account in the order of their ids, and by time.
    """
    named = silver["account_id"].combine_chunks().dictionary_encode()
    account = pc.rank(named.dictionary, "ascending").to_numpy().astype(np.int64)[named.indices.to_numpy()]
    time = silver["timestamp"].cast(pa.int64())
    rows = silver.append_column("account", pa.array(account)).append_column("time", time)
    rows = rows.select([*_ROWS.names, *(field.name for field in extra)])
    order = np.argsort(account, kind="stable")
    begins = np.flatnonzero(np.diff(account[order], prepend=0) != 0)
    # Parts are whole accounts. Each is selected from at once, since the text of all rows would fill the memory.
    cuts = begins[np.unique(np.searchsorted(begins, np.arange(0, len(order), _PART_ROWS), "right") - 1)]
    parts = []
    for begin, end in zip(cuts, np.append(cuts, len(order))[1:], strict=True):
        part = rows.take(pa.array(order[begin:end])).cast(pa.schema([*_ROWS, *extra]))
        computed, _ = compute(MEMORY.empty_table(), part)
        parts.append(select(computed))
    return pa.concat_tables(parts) if parts else schema.empty_table()


def of_stream(silver: DataFrame, settings: Settings, forget: Collection[int] = ()) -> DataFrame:
    """Compute the features of a stream, micro-batch by micro-batch; packed as :func:`of_history` packs them.

    A row that arrives after a later transaction of its account sees the transactions before it, as far as the tiles
    distinguish them. The features of the later transaction are not recomputed. The state of every bucket loses the
    accounts whose hashes (``xxhash64``) are in ``forget``.
    """

    def step(bucket: int, state: buckets.State, rows: pa.Table) -> tuple[pa.Table, buckets.State]:
        computed, memory = compute(state[STATE], rows)
        return _payloads(computed), {STATE: memory}

    def change(bucket: int, state: buckets.State) -> buckets.State:
        return {name: buckets.without_accounts(forget, table) for name, table in state.items()} if forget else state

    processor = buckets.BucketProcessor({STATE: MEMORY}, _ROWS, step, change)
    packed = _packed(silver, settings, _ROWS, every=(0,) if forget else ()).groupBy("bucket")
    return packed.transformWithStateInPandas(processor, _PAYLOAD, "Append", "None")


def unpacked(payloads: DataFrame) -> DataFrame:
    """Return the rows of payloads, :data:`COMPUTED`."""
    return payloads.mapInArrow(opened, tables.ddl(_COLUMNS))


def opened(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Unpack Arrow batches of payloads into batches of :data:`COMPUTED`; unpacked batches pass through."""
    for batch in batches:
        if batch.schema.names == COMPUTED.names:
            yield batch
            continue
        for payload in batch.column("payload"):
            yield from pa.ipc.open_stream(payload.as_buffer())


def _payloads(computed: pa.Table) -> pa.Table:
    """Pack computed rows: otherwise Spark would convert the arrays to its rows, and back to arrays for the scorer."""
    parts = [computed.slice(begin, _PAYLOAD_ROWS) for begin in range(0, len(computed), _PAYLOAD_ROWS)]
    payloads = [buckets.to_bytes(part.combine_chunks()) for part in parts]
    return pa.table({"payload": pa.array(payloads, pa.binary())})


def _packed(silver: DataFrame, settings: Settings, schema: pa.Schema, every: Collection[int] = ()) -> DataFrame:
    """Pack transactions by bucket; ``schema`` names columns of ``silver``, and ``account`` and ``time``."""
    computed = {"account": F.xxhash64("account_id"), "time": F.unix_micros("timestamp")}
    return buckets.pack(silver.withColumns(computed), schema, settings.buckets, every)
