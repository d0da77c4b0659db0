"""Ordering: sorts a bucket's rows by account, and an account's rows by event time, source and position."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from numpy.typing import NDArray


def row_order(state: pa.Table, rows: pa.Table, by_time: bool = False) -> NDArray[np.int64]:
    """Return the order of a bucket's rows: for each account, first its rows from the state, then its new rows.

    Args:
        state: rows of the bucket's state: ``account``, ``time``.
        rows: new rows in any order: ``account``, ``time`` (microseconds), ``source`` (a dictionary), ``position``.
        by_time: order by time first; a row of the state then comes before a new one only if their times are equal.

    Returns:
        Row numbers into ``state`` followed by ``rows``: by account, state before new, time, then ``source`` as text
        and ``position``.
    """
    account = np.concatenate([state["account"].to_numpy(), rows["account"].to_numpy()])
    time = np.concatenate([state["time"].to_numpy(), rows["time"].to_numpy()])
    is_new = np.arange(len(account)) >= len(state)
    order = np.lexsort((is_new, time, account) if by_time else (time, is_new, account))

    a = account[order]
    t = time[order]
    new = is_new[order]
    tied = (a[1:] == a[:-1]) & (t[1:] == t[:-1]) & new[:-1]
    if tied.any():
        # Few rows are tied, and only these need their source as text, which is slow to decode.
        tied_at = np.flatnonzero(np.append(tied, False) | np.insert(tied, 0, False))
        source_position = rows.select(["source", "position"]).unify_dictionaries()
        source_position = source_position.take(pa.array(order[tied_at] - len(state)))
        source = np.asarray(source_position["source"].cast(pa.string()).to_pylist(), dtype=str)
        position = source_position["position"].to_numpy()
        order[tied_at] = order[tied_at][np.lexsort((position, source, t[tied_at], a[tied_at]))]
    return order


def clock(rows: pa.Table) -> int:
    """Return a bucket's event time: the median of its new rows, which a single wrong timestamp does not move."""
    return int(np.median(rows["time"].to_numpy()))


def pick(first: pa.Table, second: pa.Table, numbers: NDArray[np.int64]) -> pa.Table:
    """Return rows in the columns of ``first``; ``numbers`` count through ``first``, then ``second``."""
    # Few rows of many are picked, so each table is reduced to its rows before the two are concatenated.
    in_first = np.flatnonzero(numbers < len(first))
    in_second = np.flatnonzero(numbers >= len(first))
    picked = pa.concat_tables(
        [
            first.take(pa.array(numbers[in_first])),
            second.select(first.schema.names).take(pa.array(numbers[in_second] - len(first))),
        ]
    )
    rank = np.empty(len(numbers), np.int64)
    rank[np.concatenate([in_first, in_second])] = np.arange(len(numbers))
    return picked.take(pa.array(rank)).combine_chunks()
