"""Writer: writes rows in one commit. Spark writes in a workspace; on a laptop delta-rs does, if it can."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, ClassVar, Literal

import pyarrow as pa

if TYPE_CHECKING:
    from datetime import date

    from pyspark.sql import DataFrame

    from fraudlake.lake.data_file import DataFile

Transaction = tuple[str, int]
"""The writer of an append and its micro-batch: Delta's ``txnAppId`` and ``txnVersion``."""
Compute = Callable[[Iterator["pa.RecordBatch"]], Iterator["pa.RecordBatch"]]
Mode = Literal["append", "overwrite"]


class Writer(ABC):
    """Writes one table. Both implementations record transactions and metadata alike, so a stream may switch writers."""

    rewrites_partitions: ClassVar[bool]
    """Whether :meth:`rewrite` chooses among all files of the partitions, in a commit that takes seconds."""

    @abstractmethod
    def append(
        self,
        rows: DataFrame,
        transaction: Transaction | None = None,
        compute: Compute | None = None,
        metadata: str | None = None,
    ) -> None:
        """Append rows in one commit, unless an earlier commit was of this transaction or a later one.

        Args:
            rows: the columns of :meth:`Lake.table`, or what ``compute`` turns into them; further columns become null.
            transaction: the id of the stream that appends, and its micro-batch.
            compute: turns Arrow batches of ``rows`` into batches of the table's schema, in Spark's tasks.
            metadata: a text for the commit; :meth:`LakeStore.history` returns it.
        """

    @abstractmethod
    def write(
        self,
        rows: pa.Table | pa.RecordBatchReader,
        mode: Mode,
        transaction: Transaction | None = None,
        metadata: str | None = None,
    ) -> None:
        """Append Arrow rows, or overwrite the table with them, in at most one commit, as :meth:`append` does."""

    @abstractmethod
    def merge_rows(self, changes: pa.Table, keys: tuple[str, ...]) -> None:
        """Upsert and delete Arrow rows by their keys, as :meth:`merge`."""

    @abstractmethod
    def merge(self, changes: DataFrame, keys: tuple[str, ...], dates: list[date] | None = None) -> None:
        """Upsert and delete rows by their keys; it is repeated after a conflict with another writer.

        Args:
            changes: the table's columns and ``gone``: if that is true, the row with the same keys is deleted.
            keys: the columns that identify a row; nulls are equal.
            dates: all values of ``date`` in the changes, if they are known.
        """

    def upsert(self, rows: DataFrame, keys: tuple[str, ...], dates: list[date]) -> None:
        """Replace the rows with the same keys, and insert the others: see :meth:`merge`."""
        self.merge(rows.selectExpr("*", "false AS gone"), keys, dates)

    def upsert_rows(self, rows: pa.Table, keys: tuple[str, ...]) -> None:
        """Replace the rows with the same keys by Arrow rows, and insert the others."""
        gone = pa.nulls(len(rows), pa.bool_()).fill_null(False)
        self.merge_rows(rows.append_column("gone", gone), keys)

    @abstractmethod
    def rewrite(self, files: list[DataFile], by: tuple[str, ...], size: int) -> None:
        """Rewrite files within their partitions, in one commit that changes no row.

        Args:
            files: the files to rewrite; all of their partitions, if they are clustered.
            by: the columns to cluster by; if empty, files are only compacted.
            size: approximate size of the new files, in bytes.

        Raises:
            Exception: another commit was first (``conflict.is_conflict``).
        """
