"""The detector: transactions and the open flags of their accounts become alerts and the flags that stay open.

Because the large transaction must *immediately* follow the small one, every rule is a condition on two consecutive
transactions of an account. So a whole bucket of accounts is sorted by account and order once, and each rule is
evaluated on neighbouring rows as arrays. What a bucket must remember is its flags: the last transaction of each
account, where it was small for some rule and may still be followed in time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from fraudlake.detection import ordering

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from fraudlake.settings import Rule

ROWS = pa.schema(
    [
        ("account", pa.int64()),  # 64-bit hash of account_id
        ("time", pa.int64()),  # event time, microseconds since 1970 UTC
        ("amount", pa.float64()),
        ("source", pa.dictionary(pa.int32(), pa.string())),
        ("position", pa.int64()),
        ("account_id", pa.string()),  # where it may be wanted: candidates, rows that are small or large for some rule,
        ("transaction_id", pa.string()),  # and rows that may turn out to be late
        ("label", pa.bool_()),
    ]
)
"""A bucket's transactions."""

FLAGS = pa.schema(
    [
        ("account", pa.int64()),
        ("time", pa.int64()),
        ("amount", pa.float64()),
        ("account_id", pa.string()),
        ("transaction_id", pa.string()),
    ]
)
"""A bucket's open flags: at most one an account, its last transaction."""


@dataclass(frozen=True)
class Limits:
    """The rules as the detector needs them: amounts in account currency, times in microseconds."""

    names: tuple[str, ...]
    small_below: tuple[float, ...]
    large_above: tuple[float, ...]
    within: tuple[int, ...]

    @classmethod
    def of(cls, rules: Sequence[Rule]) -> Limits:
        """Take the limits from rules."""
        return cls(
            tuple(rule.name for rule in rules),
            tuple(rule.small_below for rule in rules),
            tuple(rule.large_above for rule in rules),
            tuple(microseconds(rule.within.total_seconds()) for rule in rules),
        )


def microseconds(seconds: float) -> int:
    """Turn seconds into whole microseconds."""
    return round(seconds * 1_000_000)


class Found(NamedTuple):
    """What :func:`detect` found: alerts as pairs of rows of ``candidates`` (:data:`FLAGS`' columns).

    ``rule``, ``small`` and ``large`` are arrays of one length: the rule's number, and the two rows'.
    """

    candidates: pa.Table
    rule: NDArray[np.int64]
    small: NDArray[np.int64]
    large: NDArray[np.int64]


def detect(flags: pa.Table, rows: pa.Table, limits: Limits, now: int) -> tuple[Found, pa.Table]:
    """Apply the rules to a bucket's rows, in the order of event time behind the flags that were open.

    Rows of one time are taken in the order of ``source`` and ``position``.

    Args:
        flags: open flags, :data:`FLAGS`.
        rows: the bucket's new transactions, :data:`ROWS`; in any order.
        limits: the rules.
        now: flags that ended before this time (microseconds) are no longer kept.

    Returns:
        The alerts, and the flags left open.
    """
    order = ordering.behind(flags, rows)
    account, time, amount = (
        np.concatenate([flags[name].to_numpy(), rows[name].to_numpy()])[order] for name in ("account", "time", "amount")
    )
    follows = account[1:] == account[:-1]
    # In the order of arrival the large one may be the earlier of the two: a little out of order, not from another day.
    gap = np.abs(time[1:] - time[:-1])
    found = [
        np.flatnonzero(follows & (amount[:-1] < small) & (amount[1:] > large) & (gap <= within))
        for small, large, within in zip(limits.small_below, limits.large_above, limits.within, strict=True)
    ]
    last = np.append(~follows, True) if len(account) else np.zeros(0, bool)
    still_open = np.flatnonzero(last & (amount < max(limits.small_below)) & (time >= now - max(limits.within)))

    small = np.concatenate(found)
    rule = np.repeat(np.arange(len(found)), [len(pairs) for pairs in found])
    table = ordering.pick(flags, rows, order[np.concatenate([small, small + 1, still_open])])
    count = len(small)
    return Found(table, rule, np.arange(count), np.arange(count, 2 * count)), table.slice(2 * count)


class Settled(NamedTuple):
    """Rows sorted out by the watermark: ``ready`` to be taken, to go on ``waiting``, too ``late``.

    No row that is not late will come with a time before ``until`` (microseconds).
    """

    ready: pa.Table
    waiting: pa.Table
    late: pa.Table
    until: int


def settle(waiting: pa.Table, rows: pa.Table, watermark: int, bound: int) -> Settled:
    """Sort out which of a bucket's rows can be taken in event-time order.

    A row before the watermark is late. The others wait until none can come before them: until the watermark has passed
    them, or a row of the bucket itself has by ``bound``, which is where the watermark will stand next.

    Args:
        waiting: rows that wait, :data:`ROWS`.
        rows: new rows, :data:`ROWS`.
        watermark: the stream's watermark, microseconds.
        bound: how far behind the newest event time a row may come, microseconds.
    """
    is_late = rows["time"].to_numpy() < watermark
    late = rows.filter(pa.array(is_late))
    here = pa.concat_tables([waiting, rows.filter(pa.array(~is_late)) if len(late) else rows])
    time = here["time"].to_numpy()
    until = max(watermark, int(time.max()) - bound) if len(time) else watermark
    is_ready = pa.array(time < until)
    return Settled(here.filter(is_ready), here.filter(pa.array(time >= until)), late, until)
