"""Tiles: parts of a key's past as a few numbers each, and the windows of new rows over tiles and rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fraudlake.statistics import windows
from fraudlake.statistics.windows import Ranks, Spans

KEY = ("account", "tile")
"""The columns of the key of a tile: the hash of the row's key, and the tile's number since 1970."""
NEVER = np.iinfo(np.int64).min
NOT_YET = np.iinfo(np.int64).max
_MERGE: Mapping[str, tuple[Any, np.ufunc]] = {
    "count": (0, np.add),
    "sum": (0, np.add),
    "squares_high": (0, np.add),
    "squares_cross": (0, np.add),
    "squares_low": (0, np.add),
    "min": (np.inf, np.minimum),
    "max": (-np.inf, np.maximum),
    "first": (NOT_YET, np.minimum),
    "last": (NEVER, np.maximum),
}
NEUTRAL: Mapping[str, Any] = {statistic: neutral for statistic, (neutral, _) in _MERGE.items()} | {"latest": 0}
"""What a tile stores of its rows, and the value of a tile without rows. ``first`` and ``last`` are times of rows, and
``latest`` is the value of the row at the time ``last``."""


class Window(NamedTuple):
    """A window: ``tiles`` of ``size`` microseconds, which end ``delay`` before a row.

    A row sees Flink's labels only of transactions that are at least ``lag`` before it.
    """

    size: int
    tiles: int
    delay: int
    lag: int

    def entered(self, time: NDArray[np.int64], lag: int) -> NDArray[np.int64]:
        """Return the times from which rows see transactions at ``time``, if the window ends ``lag`` before a row."""
        return time + 1 if lag == 0 else lag + (time // self.size + 1) * self.size

    def left(self, time: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the times from which rows no longer see transactions at ``time``."""
        return self.delay + (time // self.size + self.tiles + (self.delay > 0)) * self.size


class Merged(NamedTuple):
    """A statistic, and its values in a line; those of ``latest`` have the ``times`` from which they are."""

    statistic: str
    values: NDArray[Any]
    times: NDArray[np.int64] | None = None


class Line:
    """The tiles of a state and the new rows of a bucket in one order: by key and tile, tiles before rows."""

    def __init__(
        self, account: NDArray[np.int64], time: NDArray[np.int64], size: int, old_tiles: pa.Table | None
    ) -> None:
        """Take the keys and times (microseconds) of new rows, sorted by both, and the tiles of ``size`` seconds.

        Args:
            account: the hash of each row's key.
            time: the time of each row.
            size: the length of tiles in seconds.
            old_tiles: the tiles of the state, with :data:`KEY`, sorted by it; None if there are none.
        """
        old_keys = [np.zeros(0, np.int64)] * 2 if old_tiles is None else [old_tiles[name].to_numpy() for name in KEY]
        self.old_count = len(old_keys[0])
        self.time = time
        self.size = size * 1_000_000
        accounts = np.concatenate([old_keys[0], account])
        tile = np.concatenate([old_keys[1], time // self.size])
        # Both parts are sorted: a stable sort of one array merges them, while np.lexsort would sort from scratch.
        by_account = np.argsort(accounts, kind="stable")
        is_first = np.diff(accounts[by_account], prepend=0) != 0
        is_first[:1] = True
        run = np.empty(len(accounts), np.int64)
        run[by_account] = np.cumsum(is_first)
        self._ranks = Ranks(tile)
        rank = self._ranks.find(run, tile)
        self._order = np.argsort(rank, kind="stable")
        self.account, self.tile, self._rank = accounts[self._order], tile[self._order], rank[self._order]
        place = np.empty(len(accounts), np.int64)
        place[self._order] = np.arange(len(accounts))
        self._place, self._run = place[self.old_count :], run[self.old_count :]
        self._spans: dict[Window, Spans] = {}

    def merged(self, old: NDArray[Any], new: NDArray[Any]) -> NDArray[Any]:
        """Merge values of the state and of the rows in this order."""
        return np.concatenate([old, new])[self._order]

    def spans(self, window: Window) -> Spans:
        """Return the window of each row: it begins at a tile, and if it ends before the row, it ends at a tile, too."""
        if window not in self._spans:
            low = self._first((self.time - window.delay) // self.size - window.tiles + (window.delay == 0))
            high = self._first((self.time - window.lag) // self.size) if window.lag else self._place
            self._spans[window] = Spans(low, np.maximum(high, low))
        return self._spans[window]

    def _first(self, tile: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the first place of each row's key from a tile on."""
        return np.searchsorted(self._rank, self._ranks.find(self._run, tile))

    def tiles(self, merged: Mapping[str, Merged], oldest: int | None) -> pa.Table:
        """Return the tiles of the state and of the rows, from the number ``oldest`` on.

        Args:
            merged: the values of each column.
            oldest: the number; None keeps all tiles.
        """
        adds = np.zeros(len(self.tile), bool)
        for statistic, values, _ in merged.values():
            if statistic != "latest":
                adds |= values != NEUTRAL[statistic]
        at = np.flatnonzero(self._is_needed(oldest) & adds)
        start = np.flatnonzero(np.diff(self._rank[at], prepend=-1))
        columns = {"account": self.account[at[start]], "tile": self.tile[at[start]]}
        for name, (statistic, values, times) in merged.items():
            if not len(start):
                columns[name] = values[:0]
            elif times is not None:
                order, rank = _by_time(times)
                columns[name] = values[order[np.maximum.reduceat(rank[at], start)]]
            else:
                columns[name] = _MERGE[statistic][1].reduceat(values[at], start)
        return pa.table(columns)

    def histogram(self, levels: NDArray[np.int64], counts: NDArray[np.int64], oldest: int | None) -> pa.Table:
        """Return how often each level occurs in the tiles from the number ``oldest`` on."""
        at = np.flatnonzero((counts > 0) & self._is_needed(oldest))
        at = at[np.lexsort((levels[at], self._rank[at]))]
        is_other = (np.diff(self._rank[at], prepend=-1) != 0) | (np.diff(levels[at], prepend=-1) != 0)
        start = np.flatnonzero(is_other)
        first = at[start]
        total = np.add.reduceat(counts[at], start) if len(start) else counts[:0]
        return pa.table(
            {"account": self.account[first], "tile": self.tile[first], "level": levels[first], "count": total}
        )

    def values(
        self, values: NDArray[np.int64], is_counted: NDArray[np.bool_], oldest: int | None, most: int
    ) -> pa.Table:
        """Return the distinct values of the tiles from the number ``oldest`` on, at most ``most`` of each tile."""
        at = np.flatnonzero(is_counted & self._is_needed(oldest))
        at = at[np.lexsort((values[at], self._rank[at]))]
        is_new_tile = np.diff(self._rank[at], prepend=-1) != 0
        is_other = is_new_tile | (np.diff(values[at], prepend=0) != 0)
        at = at[is_other]
        is_new_tile = is_new_tile[is_other]
        number = np.arange(len(at)) - np.maximum.accumulate(np.where(is_new_tile, np.arange(len(at)), 0))
        at = at[number < most]
        return pa.table({"account": self.account[at], "tile": self.tile[at], "value": values[at]})

    def _is_needed(self, oldest: int | None) -> NDArray[np.bool_]:
        return np.ones(len(self.tile), bool) if oldest is None else self.tile >= oldest


def latest(values: NDArray[Any], times: NDArray[np.int64], spans: Spans) -> NDArray[np.float64]:
    """Return the value of the latest row of each window; NaN if it has none.

    A tile of the state may have a later time than a late row that follows it, so the order of rows does not tell.
    """
    order, ranks = _latest(times, spans)
    return np.where(ranks >= 0, values[order[ranks]].astype(np.float64), np.nan)


def is_latest(
    values: NDArray[Any], of_rows: NDArray[Any], times: NDArray[np.int64], spans: Spans
) -> NDArray[np.float64]:
    """Return 1 if a row's own value is that of the latest row of its window, 0 if not; NaN if the window has none."""
    order, ranks = _latest(times, spans)
    return np.where(ranks >= 0, values[order[ranks]] == of_rows, np.nan)


def _latest(times: NDArray[np.int64], spans: Spans) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    order, rank = _by_time(times)
    latest = windows.extreme("max", np.where(times > NEVER, rank, -1.0), spans)
    return order, np.maximum(latest, -1).astype(np.int64)


def _by_time(times: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the order by time, and the rank of each row in it."""
    order = np.argsort(times, kind="stable")
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    return order, rank
