"""The detector: evaluates small-then-large rules on new transactions and the open flags of their accounts.

The large transaction must *immediately* follow the small one, so each small-then-large rule is a condition on two
consecutive transactions of an account. A whole bucket of accounts is sorted once, by account and order, and each rule
is evaluated on neighbouring rows as arrays. The state of a bucket is its open flags. An open flag is the last
transaction of an account, if it is small for some rule and a large one may still follow within the rule's time.
In the buckets of other entities, the entity's key replaces the account.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from fraudlake.arrays import codes_of
from fraudlake.keyed import ordering
from fraudlake.times import durations

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from fraudlake.rules.kinds.small_then_large import SmallThenLargeRule

FLAGS = pa.schema(
    [
        ("account", pa.int64()),
        ("time", pa.int64()),
        ("amount", pa.float64()),
        ("account_id", pa.string()),
        ("transaction_id", pa.string()),
    ]
)
"""A bucket's open flags: at most one per account, its last transaction."""


class AlertPairs(NamedTuple):
    """Alerts as pairs of a small and a large row of ``candidates`` (the columns of :data:`FLAGS`).

    ``rule``, ``small`` and ``large`` have an entry for each alert: the number of the rule, and those of the two rows.
    """

    candidates: pa.Table
    rule: NDArray[np.int64]
    small: NDArray[np.int64]
    large: NDArray[np.int64]


def detect(
    flags: pa.Table,
    rows: pa.Table,
    rules: Sequence[SmallThenLargeRule],
    now: int,
    key: Sequence[str] = ("account_id",),
) -> tuple[AlertPairs, pa.Table]:
    """Apply the small-then-large rules to a bucket's rows, in event-time order, after the flags that were open.

    Rows of the same time are ordered by ``source`` and ``position``.

    Args:
        flags: open flags, :data:`FLAGS` and the columns of the key.
        rows: the bucket's transactions, in any order: :data:`~fraudlake.keyed.rows.ROWS` and the columns of the key.
        rules: the rules.
        now: event time in microseconds; flags that expired before it are dropped.
        key: the columns whose hash is ``account``.

    Returns:
        The alerts, and the flags that are open now.
    """
    if not rules:
        nothing = np.zeros(0, np.int64)
        return AlertPairs(flags.schema.empty_table(), nothing, nothing, nothing), flags.schema.empty_table()
    order = ordering.row_order(flags, rows)
    account, time, amount = (
        np.concatenate([flags[name].to_numpy(), rows[name].to_numpy()])[order] for name in ("account", "time", "amount")
    )
    follows = account[1:] == account[:-1]
    before = {"amount": amount[:-1], "time": time[:-1]}
    after = {"amount": amount[1:], "time": time[1:]}
    small_by_rule = [np.flatnonzero(follows & rule.is_raised(before, after)) for rule in rules]
    is_last = np.append(~follows, True) if len(account) else np.zeros(0, bool)
    is_small = np.any([rule.is_small(amount) for rule in rules], axis=0)
    longest = durations.microseconds(max(rule.within for rule in rules))
    open_flags = np.flatnonzero(is_last & is_small & (time >= now - longest))

    small = np.concatenate(small_by_rule)
    rule = np.repeat(np.arange(len(small_by_rule)), [len(numbers) for numbers in small_by_rule])
    table = ordering.pick(flags, rows, order[np.concatenate([small, small + 1, open_flags])])
    count = len(small)
    # Keys are sorted by hash, and two keys may have the same hash: compare the keys, or one would alert on the other.
    codes = codes_of(table.slice(0, 2 * count), key)
    numbers = np.flatnonzero(codes[:count] == codes[count:])
    return AlertPairs(table, rule[numbers], numbers, numbers + count), table.slice(2 * count)


class WatermarkSplit(NamedTuple):
    """Rows divided by the watermark: ``ready`` for the detector, still ``waiting``, or too ``late``.

    Ready rows are before ``ready_before`` (microseconds). Rows with such a time that arrive later are late.
    """

    ready: pa.Table
    waiting: pa.Table
    late: pa.Table
    ready_before: int


def split_by_watermark(waiting: pa.Table, rows: pa.Table, watermark: int, bound: int) -> WatermarkSplit:
    """Select the rows of a bucket that can be processed in event-time order.

    A new row before the watermark is late. Any other row waits until no earlier row can come: until the watermark has
    passed it, or the bucket has a row that is newer by more than ``bound``. The next watermark is the newest event time
    minus ``bound``, in whole milliseconds, as Spark computes it.

    Args:
        waiting: rows that have waited since earlier micro-batches, :data:`~fraudlake.keyed.rows.ROWS`.
        rows: new rows, :data:`~fraudlake.keyed.rows.ROWS`.
        watermark: the stream's watermark, microseconds.
        bound: how much older than the newest event time a row may be, in microseconds; whole milliseconds.
    """
    is_late = rows["time"].to_numpy() < watermark
    late = rows.filter(pa.array(is_late))
    parts = [waiting, rows.filter(pa.array(~is_late)) if len(late) else rows]
    # Rows that have waited since before a rule was added lack its further columns.
    in_time = pa.concat_tables(parts, promote_options="default")
    time = in_time["time"].to_numpy()
    ready_before = max(watermark, int(time.max()) // 1000 * 1000 - bound) if len(time) else watermark
    is_ready = pa.array(time < ready_before)
    still_waiting = in_time.filter(pa.array(time >= ready_before))
    return WatermarkSplit(in_time.filter(is_ready), still_waiting, late, ready_before)
