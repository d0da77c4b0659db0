"""Ordering: sorts a bucket's rows by account, and an account's rows by event time and by where they came from."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from numpy.typing import NDArray


def behind(kept: pa.Table, rows: pa.Table, by_time: bool = False) -> NDArray[np.int64]:
    """Order an account's new rows behind what was kept of it.

    Args:
        kept: rows remembered from before: ``account``, ``time``.
        rows: new rows in any order: ``account``, ``time`` (microseconds), ``source`` (a dictionary), ``position``.
        by_time: kept rows come before new ones only where their times are equal.

    Returns:
        Row numbers into ``kept`` followed by ``rows``: by account, kept before new, time, then ``source`` as text and
        ``position``.
    """
    account = np.concatenate([kept["account"].to_numpy(), rows["account"].to_numpy()])
    time = np.concatenate([kept["time"].to_numpy(), rows["time"].to_numpy()])
    is_new = np.arange(len(account)) >= len(kept)
    order = np.lexsort((is_new, time, account) if by_time else (time, is_new, account))

    a, t, new = account[order], time[order], is_new[order]
    tied = (a[1:] == a[:-1]) & (t[1:] == t[:-1]) & new[:-1]
    if tied.any():
        # Ties are few: only their sources are worth reading as text.
        at = np.flatnonzero(np.append(tied, False) | np.insert(tied, 0, False))
        places = rows.select(["source", "position"]).unify_dictionaries().take(pa.array(order[at] - len(kept)))
        source = np.asarray(places["source"].cast(pa.string()).to_pylist(), dtype=str)
        order[at] = order[at][np.lexsort((places["position"].to_numpy(), source, t[at], a[at]))]
    return order


def clock(rows: pa.Table) -> int:
    """Tell a bucket's event time: the median of its new rows, which one row with a wild timestamp does not move."""
    return int(np.median(rows["time"].to_numpy()))


def pick(first: pa.Table, second: pa.Table, at: NDArray[np.int64]) -> pa.Table:
    """Take rows, by number into ``first`` followed by ``second``, in the columns of ``first``."""
    # Both sides are taken from before they are joined: few rows are wanted of many.
    of_first, of_second = np.flatnonzero(at < len(first)), np.flatnonzero(at >= len(first))
    taken = pa.concat_tables(
        [
            first.take(pa.array(at[of_first])),
            second.select(first.schema.names).take(pa.array(at[of_second] - len(first))),
        ]
    )
    place = np.empty(len(at), np.int64)
    place[np.concatenate([of_first, of_second])] = np.arange(len(at))
    return taken.take(pa.array(place)).combine_chunks()
