"""Rows: sorts an Arrow table by partition, time and arrival."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fraudlake.arrays import Vector, codes_of, vector_of
from fraudlake_patterns.expressions import Column
from fraudlake_patterns.values import Binding


@dataclass(frozen=True)
class SortedRows:
    """Columns of rows, one partition after the other, each in event-time order.

    ``starts`` are the first rows of the partitions, followed by the number of all rows.
    """

    columns: dict[str, Vector]
    starts: NDArray[np.int64]
    new: NDArray[np.int64]
    """For each partition, the first row that was not seen before."""
    order: NDArray[np.int64]
    """The rows' numbers in the table that they came from."""

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.order)

    def where(self, chosen: NDArray[np.bool_]) -> SortedRows:
        """Return the chosen rows; a partition may become empty."""
        numbers = np.flatnonzero(chosen)
        before = np.concatenate([[0], np.cumsum(chosen)])
        columns = {name: _reordered(column, numbers) for name, column in self.columns.items()}
        return SortedRows(columns, before[self.starts], before[self.new], self.order[numbers])

    @property
    def is_new(self) -> NDArray[np.bool_]:
        """Whether each row was not seen before."""
        return np.arange(len(self)) >= np.repeat(self.new, np.diff(self.starts))

    @property
    def ends(self) -> NDArray[np.int64]:
        """For each row, the end (exclusive) of its partition."""
        return np.repeat(self.starts[1:], np.diff(self.starts))

    def from_each(self, begin: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the table's row numbers of each partition's rows from ``begin`` on."""
        return self.order[np.arange(len(self)) >= np.repeat(begin, np.diff(self.starts))]

    @cached_property
    def lists(self) -> dict[str, list[Any]]:
        """The columns as Python values, None for NULL."""
        return {name: column.to_list() for name, column in self.columns.items()}

    @property
    def binding(self) -> Binding:
        """The columns for expressions over single rows."""
        return Binding(self.lists)


def sort(
    table: pa.Table,
    time: str,
    partition_by: Sequence[Column],
    further: Sequence[tuple[Column, bool]],
    names: Sequence[str],
    arrival: Sequence[str] = (),
    sorted_rows: int = 0,
) -> SortedRows:
    """Sort rows.

    Args:
        table: the columns that the other arguments name.
        time: the time column, a timestamp (UTC).
        partition_by: the columns whose values the rows of a partition share; NULL is a separate value.
        further: columns that order rows of the same time, and whether each is descending.
        names: the columns to return.
        arrival: columns that break the remaining ties; without them, tied rows keep the table's order.
        sorted_rows: number of sorted rows at the beginning of the table: they keep their order and come first.
    """
    # numpy's lexsort takes the most important key last.
    keys = [_rank(table[name], descending=False) for name in reversed(arrival)]
    keys += [_rank(table[column.name], descending) for column, descending in reversed(further)]
    keys.append(vector_of(table[time]).values)
    is_new = np.arange(len(table)) >= sorted_rows
    if sorted_rows:
        keys = [*(np.where(is_new, key, 0) for key in keys), is_new.astype(np.int64)]
    partition = codes_of(table, [column.name for column in partition_by])
    order = np.lexsort((*keys, partition))
    sorted_partition = partition[order]
    changes = np.flatnonzero(sorted_partition[1:] != sorted_partition[:-1]) + 1
    starts = np.concatenate([[0], changes, [len(order)]]) if len(order) else np.zeros(1, np.int64)
    seen_before = np.concatenate([[0], np.cumsum(~is_new[order])])
    new = starts[:-1] + np.diff(seen_before[starts])
    columns = {name: _reordered(vector_of(table[name]), order) for name in names}
    return SortedRows(columns, starts, new, order)


def _reordered(column: Vector, order: NDArray[np.int64]) -> Vector:
    return Vector(column.values[order], None if column.null is None else column.null[order])


def _rank(column: pa.ChunkedArray, descending: bool) -> NDArray[np.int64]:
    """Return numbers that sort like the values; NULL is the smallest, as in Flink."""
    encoded = column.combine_chunks().dictionary_encode()
    rank_of_code = np.empty(len(encoded.dictionary) + 1, np.int64)
    rank_of_code[0] = 0
    rank_of_code[1:][pc.sort_indices(encoded.dictionary).to_numpy()] = np.arange(1, len(encoded.dictionary) + 1)
    ranks: NDArray[np.int64] = rank_of_code[
        encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64) + 1
    ]
    return -ranks if descending else ranks
