"""Features: computes statistics of an account's history for each of its transactions.

Training and scoring share one function, :func:`compute`. It is called once for a history, and once per micro-batch for
a stream, which passes the state (:data:`MEMORY`) from call to call. The sums are of integers (cents, millionths), so
they are exact and do not depend on how a history is split into micro-batches.

The state of an account is bounded. Its last minute is stored by the second, its last hour by the minute, its last day
by the hour, and everything before that as one sum. An account without payments for :data:`FORGET_DAYS` is forgotten.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from fraudlake import tables
from fraudlake.feature import OWN, Feature
from fraudlake.keyed import ordering
from fraudlake.keyed.rows import ROWS
from fraudlake.settings.features import typed
from fraudlake.statistics import windows
from fraudlake.statistics.windows import Ranks, Spans
from fraudlake.times import durations

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fraudlake.settings import Settings

_PREDICTIONS = {column.name: column for column in tables.GOLD_FRAUD_PREDICTIONS.fields}
NAMES = tuple(feature.name for feature in OWN)
"""The features that every lake has; docs/how-to/model.md defines each."""

FORGET_DAYS = 30
"""An account without a transaction for this many days counts as new."""

_HOUR = durations.microseconds(timedelta(hours=1))
_DAY = 24 * _HOUR
_WINDOWS = sorted({(feature.size, feature.tiles) for feature in OWN if feature.aggregate in ("count", "sum")})
"""The length of each window's tiles in seconds, and their number; windows begin at the start of a tile."""
_SUMS = ("count", "cents", "logs", "east", "north")
"""The sums: number of transactions, cents, logarithms of the amount, and the time of day as a point on a circle."""
MEMORY = pa.schema(
    [("account", pa.int64()), ("time", pa.int64()), ("amount", pa.float64()), *((name, pa.int64()) for name in _SUMS)]
)
"""The state: an account's transactions as tiles. A tile has the time (microseconds) and amount of its last transaction,
and the sums over all of its transactions."""
STATE = "account_tiles"
"""The name of the state; checkpoints contain it."""
_COLUMNS = [
    *(_PREDICTIONS[name] for name in ("transaction_id", "account_id", "timestamp", "label")),
    *(column for column in tables.SILVER_TRANSACTIONS.fields if column.name in ("source", "position")),
    *(_PREDICTIONS[name] for name in (*NAMES, "date")),
]
COMPUTED = tables.schema(_COLUMNS)
"""The rows of :func:`compute`: a transaction, its source, and :data:`NAMES`."""


def compute(memory: pa.Table, rows: pa.Table, is_ordered: bool = True) -> tuple[pa.Table, pa.Table]:
    """Compute the features of a bucket's rows; each row sees only the rows before it.

    A row is before another if its time is earlier, or its time is the same and its ``source``, ``position`` is earlier.

    Args:
        memory: the state, :data:`MEMORY`.
        rows: the bucket's new transactions, in any order.
        is_ordered: whether to return rows in the order of account and time; otherwise they stay in the order of
            ``rows``, which is faster.

    Returns:
        :data:`COMPUTED`, with the further columns of ``rows``; and the state for the next call.
    """
    order = ordering.row_order(memory, rows, by_time=True)
    old = {name: memory[name].to_numpy() for name in MEMORY.names}
    fresh = {name: rows[name].to_numpy() for name in ("account", "time", "amount")}
    fresh |= _summands(fresh["time"], fresh["amount"])
    table = {name: np.concatenate([old[name], fresh[name]])[order] for name in MEMORY.names}
    is_new = order >= len(memory)

    begins = _begins(table, is_new)
    columns: dict[str, Any] = {name: values[is_new] for name, values in _features(table, begins).items()}
    number = order[is_new] - len(memory)
    if is_ordered:
        new_rows = rows.take(pa.array(number))
    else:
        new_rows = rows
        place = np.empty(len(number), np.int64)
        place[number] = np.arange(len(number))
        columns = {name: values[place] for name, values in columns.items()}
    columns |= {name: new_rows[name] for name in ("transaction_id", "account_id", "label", "source", "position")}
    columns["timestamp"] = new_rows["time"].cast(COMPUTED.field("timestamp").type)
    columns["date"] = columns["timestamp"].cast(pa.date32())
    computed = pa.table({name: columns[name] for name in COMPUTED.names}).cast(COMPUTED)
    for name in new_rows.column_names:
        if name not in ROWS.names:
            computed = computed.append_column(name, new_rows[name])
    oldest = ordering.clock(rows) - FORGET_DAYS * _DAY if len(rows) else None
    return computed, _remembered(table, begins, oldest)


def _summands(time: NDArray[Any], amount: NDArray[Any]) -> dict[str, NDArray[np.int64]]:
    """Return the contribution of each transaction to each of the sums."""
    cents = np.clip(amount, -windows.LARGEST, windows.LARGEST) * 100
    angle = time % _DAY / _DAY * 2 * np.pi
    return {
        "count": np.ones(len(time), np.int64),
        "cents": windows.units(amount, 100),
        "logs": windows.units(np.log(np.maximum(cents, 1) / 100), 1_000_000),
        "east": windows.units(np.cos(angle), 1_000_000),
        "north": windows.units(np.sin(angle), 1_000_000),
    }


def _begins(table: dict[str, NDArray[Any]], is_new: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return the rows at which an account begins, or returns after it was forgotten."""
    is_other_account = np.diff(table["account"], prepend=0) != 0
    is_other_account[:1] = True
    away = np.diff(table["time"], prepend=0) > FORGET_DAYS * _DAY
    begins: NDArray[np.bool_] = is_other_account | (away & is_new)
    return begins


def _features(table: dict[str, NDArray[Any]], begins: NDArray[np.bool_]) -> dict[str, NDArray[Any]]:
    """Compute :data:`NAMES` of transactions that are sorted by account and time."""
    time = table["time"]
    amount = table["amount"]
    gap = np.diff(time, prepend=0) / 1e6
    first = np.maximum.accumulate(np.where(begins, np.arange(len(begins)), 0))
    row = np.arange(len(begins))
    second = time // 1_000_000
    run = np.cumsum(begins)
    ranks = Ranks(second)
    rank = ranks.find(run, second)
    spans = {}
    for size, tiles in _WINDOWS:
        opens = (second // size - tiles + 1) * size
        spans[size, tiles] = Spans(np.searchsorted(rank, ranks.find(run, opens)), row)
    # The usual value is the mean of all transactions so far with the current one, so an account's first one is usual.
    own = _summands(time, amount)
    so_far = Spans(first, row)
    usual = {name: windows.total(table[name], so_far) + own[name] for name in ("count", "logs", "east", "north")}

    def values(feature: Feature) -> Any:
        within = 0.0 if feature.window is None else feature.window.total_seconds()
        follows = ~begins & (gap <= within)
        span = spans.get((feature.size, feature.tiles), so_far)
        match feature.aggregate:
            case "value":
                return table[str(feature.column)]
            case "hour":
                return time // _HOUR % 24
            case "last":
                return np.where(follows, np.roll(table[str(feature.column)], 1), 0.0)
            case "seconds_since_last":
                return np.where(follows, gap, within)
            case "count":
                return windows.total(table["count"], span)
            case "sum":
                return windows.total(table["cents"], span) / 100
            case "ratio_to_usual":
                return np.exp((own["logs"] - usual["logs"] / usual["count"]) / 1e6)
            case "hours_to_usual":
                turn = np.arctan2(own["north"], own["east"]) - np.arctan2(usual["north"], usual["east"])
                return np.abs((turn + np.pi) % (2 * np.pi) - np.pi) * 12 / np.pi
        raise LookupError(f"nothing here computes {feature.aggregate}, the aggregate of {feature.name}")

    return {feature.name: values(feature) for feature in OWN}


def _remembered(table: dict[str, NDArray[Any]], begins: NDArray[np.bool_], oldest: int | None) -> pa.Table:
    """Merge tiles that the next transaction cannot tell apart; forget accounts last seen before ``oldest``."""
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
    # Length of the tile of a row; 0: the sum of everything before the last day.
    length = np.zeros(len(account), np.int64)
    for size, tiles in reversed(_WINDOWS):
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


def names(settings: Settings) -> tuple[str, ...]:
    """Return the names of a lake's features, both built in and declared."""
    return (*NAMES, *(feature.name for feature in settings.features))


def computed_columns(settings: Settings) -> list[tables.Column]:
    """Return the columns of computed rows: those of :data:`COMPUTED`, and the declared features."""
    declared = typed(settings.features, settings.silver_columns)
    return [*_COLUMNS, *(tables.Column(feature.name, type_, feature.meaning) for feature, type_ in declared)]
