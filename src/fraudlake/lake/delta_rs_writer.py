"""delta-rs writer: Spark computes the rows, and delta-rs commits them, since a commit takes Spark a second or more."""

from __future__ import annotations

import shutil
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import deltalake
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, write_deltalake

from fraudlake import tables
from fraudlake.arrays import to_bytes
from fraudlake.lake import conflict, delta_rs_reader, publication, rewriting, session
from fraudlake.lake.writer import Compute, Mode, Transaction, Writer
from fraudlake.text.sql_text import one_of

if TYPE_CHECKING:
    from datetime import date

    from pyspark.sql import DataFrame

    from fraudlake.lake.data_file import DataFile

_PLAIN_WRITER = 2
"""The latest writer version of Delta's protocol whose features delta-rs supports completely."""
_COMPACT_EVERY = 50
"""Number of commits between two compactions of a table."""
_MERGED_AT_ONCE = 10_000_000
"""Rows that a merge takes at once, about 2 GB of memory; more of them are merged in several commits."""
_FEW_OF_TASK = 10_000
"""Rows of a task that it returns instead of writing them to files of its own."""
_RESULT = pa.schema([("path", pa.string()), ("few", pa.binary())])
"""The result of a task: the path of its scratch table, or its rows as an Arrow IPC stream."""
_FIRST_WRITE = 1
"""The version of the first write to a new table."""
_NO_RETRIES = 0
"""Retries of delta-rs for a commit that removes files. A retry does not notice that another commit has removed one of
them (seen in 1.6), so the rows that a compaction wrote meanwhile would stay."""


def is_plain(delta: DeltaTable) -> bool:
    """Return whether delta-rs supports all features that the table requires of its writers."""
    return delta.protocol().min_writer_version <= _PLAIN_WRITER


class DeltaRsWriter(Writer):
    """Writes a plain table of a local lake; without rows it makes no commit.

    Args:
        delta: the table as it is now.
        folder: its folder.
        table: the table, with its declared columns.
        spool: the folder in which Spark's tasks write scratch tables.
        compact: compacts the table's small files.
        compact_every: the number of commits after which it is called; by default, that of the tables that compact.
    """

    rewrites_partitions = False

    def __init__(
        self,
        delta: DeltaTable,
        folder: Path,
        table: tables.Table,
        spool: Path,
        compact: Callable[[], None],
        compact_every: int | None = None,
    ) -> None:
        """Write a table."""
        self._folder = folder
        self._compact_every = compact_every or (_COMPACT_EVERY if table.compacts else None)
        self._delta = delta
        self._table = table
        self._spool = spool
        self._compact = compact

    def append(
        self,
        rows: DataFrame,
        transaction: Transaction | None = None,
        compute: Compute | None = None,
        metadata: str | None = None,
    ) -> None:
        """Append the rows of a DataFrame: see :meth:`Writer.append`."""
        if self._has(transaction):
            return
        if session.reads_few_rows(rows.sparkSession):
            # This process has loaded the packages that each of Spark's Python processes would load first.
            batches = rows.toArrow().to_batches()
            computed = [*_in_schema(compute(iter(batches)) if compute else batches, self._table.schema)]
            if computed:
                few = pa.RecordBatchReader.from_batches(self._table.schema, computed)
                self._commit(few, "append", transaction, metadata)
            return
        folder = self._spool / (transaction[0] if transaction else uuid.uuid4().hex)
        with _computed(rows, compute, self._table.schema, self._delta, folder) as (scratch_tables, few):
            if scratch_tables:
                self._publish(scratch_tables, folder, transaction, metadata)
            elif few:
                self._commit(
                    pa.RecordBatchReader.from_batches(self._table.schema, few), "append", transaction, metadata
                )

    def write(
        self,
        rows: pa.Table | pa.RecordBatchReader,
        mode: Mode,
        transaction: Transaction | None = None,
        metadata: str | None = None,
    ) -> None:
        """Append Arrow rows, or overwrite the table with them, in a fifth of the time that Spark takes."""
        if not self._has(transaction):
            self._commit(rows, mode, transaction, metadata)

    def _has(self, transaction: Transaction | None) -> bool:
        """Return whether the table has a commit of this transaction or a later one."""
        if transaction is None:
            return False
        application, version = transaction
        last = self._delta.transaction_version(application)
        return last is not None and last >= version

    def _commit(
        self,
        rows: pa.Table | pa.RecordBatchReader,
        mode: Mode,
        transaction: Transaction | None = None,
        metadata: str | None = None,
        is_next: bool = False,
    ) -> None:
        """Commit rows; with ``is_next`` only if the table has had no other commit since it was opened."""
        properties = CommitProperties(
            custom_metadata={"userMetadata": metadata} if metadata is not None else None,
            app_transactions=[deltalake.Transaction(*transaction)] if transaction else [],
            max_commit_retries=_NO_RETRIES if mode == "overwrite" or is_next else None,
        )
        # The table has columns that earlier settings declared, and the rows lack.
        evolution: Literal["merge"] | None = "merge" if mode == "append" else None
        write_deltalake(self._delta, rows, mode=mode, schema_mode=evolution, commit_properties=properties)
        self._compact_regularly()

    def _compact_regularly(self) -> None:
        if self._compact_every and self._delta.version() % self._compact_every == 0:
            self._compact()

    def _publish(
        self, scratch_tables: Sequence[Path], draft_folder: Path, transaction: Transaction | None, metadata: str | None
    ) -> None:
        """Commit the files of scratch tables that Spark's tasks have written."""
        files: dict[Path, Path] = {}
        added: list[publication.Action] = []
        number = 0
        for scratch in scratch_tables:
            for action in publication.actions(scratch, _FIRST_WRITE):
                if "add" in action:
                    added.append(action)
                    files[scratch / action["add"]["path"]] = self._folder / action["add"]["path"]
                elif "commitInfo" in action:
                    number += action["commitInfo"]["operationMetrics"]["num_added_rows"]
                    commit_info = action["commitInfo"]
        commit_info["timestamp"] = time.time_ns() // 1_000_000
        commit_info["operationMetrics"] = {"num_added_files": len(added), "num_added_rows": number}
        if metadata is not None:
            commit_info["userMetadata"] = metadata
        committed = [{"commitInfo": commit_info}, *added]
        if transaction is not None:
            committed.append({"txn": dict(zip(("appId", "version"), transaction, strict=True))})

        def conflicts(action: publication.Action) -> bool:
            return transaction is not None and action.get("txn", {}).get("appId") == transaction[0]

        draft = draft_folder / "commit.json"
        publication.publish(self._folder, self._delta.version(), committed, files, conflicts, draft)
        self._delta.update_incremental()
        self._complete_log()
        self._compact_regularly()

    def insert_rows(self, rows: pa.Table, keys: Sequence[str], is_whole: bool = False) -> None:
        """Insert the Arrow rows whose keys are not in the table; the caller repeats it after a conflict.

        Args:
            rows: few rows in the columns of the table, with distinct keys.
            keys: columns without nulls that identify a row.
            is_whole: insert none if one of them is in the table.

        Raises:
            Exception: another commit was first (``conflict.is_conflict``).
        """
        first = rows[keys[0]].unique().to_pylist()
        statement = " ".join(("SELECT", ", ".join(keys), "FROM", self._table.name, "WHERE", one_of(keys[0], first)))
        there = delta_rs_reader.Opened().query(statement, {self._table.name: self._delta}).to_pylist()
        old_keys = {tuple(row.values()) for row in there}
        is_new = [tuple(row.values()) not in old_keys for row in rows.select([*keys]).to_pylist()]
        if all(is_new) or (any(is_new) and not is_whole):
            self._commit(rows.filter(pa.array(is_new)), "append", is_next=True)

    def merge(self, changes: DataFrame, keys: tuple[str, ...], dates: list[date] | None = None) -> None:
        """Upsert and delete rows by their keys: see :meth:`Writer.merge`."""
        schema = self._table.schema.append(pa.field("gone", pa.bool_()))
        batches = changes.select(*schema.names).toArrow().to_batches()
        self.merge_rows(pa.Table.from_batches(_in_schema(batches, schema), schema), keys)

    def merge_rows(self, changes: pa.Table, keys: tuple[str, ...]) -> None:
        """Upsert and delete Arrow rows by their keys: see :meth:`Writer.merge_rows`."""
        for begin in range(0, len(changes), _MERGED_AT_ONCE):
            conflict.retried(partial(self._merge, changes.slice(begin, _MERGED_AT_ONCE), keys))

    def _merge(self, changes: pa.Table, keys: tuple[str, ...]) -> None:
        def same(columns: Iterable[str]) -> str:
            return " AND ".join(f'(t."{column}" IS NOT DISTINCT FROM s."{column}")' for column in columns)

        within = ", ".join(f"DATE '{day}'" for day in pc.unique(changes["date"]).to_pylist())
        self._delta.update_incremental()
        before = self._delta.version()
        merging = self._delta.merge(
            changes,
            f"{same(keys)} AND t.date IN ({within})",
            source_alias="s",
            target_alias="t",
            commit_properties=CommitProperties(max_commit_retries=_NO_RETRIES),
        )
        merging = merging.when_matched_delete("s.gone")
        merging = merging.when_matched_update_all(f"NOT ({same(self._table.column_names)})")
        merging.when_not_matched_insert_all("NOT s.gone").execute()
        # A merge that changes nothing makes no commit.
        if self._delta.version() > before:
            self._complete_log()

    def _complete_log(self) -> None:
        """Write a checkpoint of the log at regular commits: not every table has the property for it."""
        if self._delta.version() % tables.CHECKPOINT_EVERY == 0:
            self._delta.create_checkpoint()

    def rewrite(self, files: list[DataFile], by: tuple[str, ...], size: int) -> None:
        """Rewrite only the given files: see :meth:`Writer.rewrite`."""
        rewriting.rewrite(self._folder, files, by, size, self._spool / f"rewriting_{self._table.name}")
        self._delta.update_incremental()
        self._complete_log()


@contextmanager
def _computed(
    rows: DataFrame, compute: Compute | None, schema: pa.Schema, delta: DeltaTable, folder: Path
) -> Iterator[tuple[list[Path], list[pa.RecordBatch]]]:
    """Compute rows in Spark's tasks, each of which writes its own to a scratch table, or returns them if they are few.

    So rows leave Spark once, as arrays, and a commit only needs to move files. Collecting all rows would need as much
    memory as they have, and a file for the few rows of each task would make the table slow.

    Args:
        rows: the input.
        compute: turns the batches of a task into batches of ``schema``; None if they have its columns.
        schema: the schema of the computed rows.
        delta: the table that they are for, whose partitions and properties the scratch tables have.
        folder: the folder of the scratch tables, for this use only. What a crash has left there is removed.

    Returns:
        The scratch tables with all rows, during the block; or all rows, if no task has many.
    """
    metadata = delta.metadata()
    columns = metadata.partition_columns
    properties = metadata.configuration

    def written(batches: Iterable[pa.RecordBatch]) -> str:
        scratch = str(folder / uuid.uuid4().hex)
        own = DeltaTable.create(
            scratch, schema, partition_by=columns, configuration=properties, raise_if_key_not_exists=False
        )
        write_deltalake(own, pa.RecordBatchReader.from_batches(schema, batches), mode="append")
        return scratch

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        computed = _in_schema(compute(batches) if compute else batches, schema)
        first: list[pa.RecordBatch] = []
        while sum(batch.num_rows for batch in first) <= _FEW_OF_TASK:
            following = next(computed, None)
            if following is None:
                yield pa.RecordBatch.from_pydict(
                    {"path": [None], "few": [to_bytes(pa.Table.from_batches(first, schema))]}, _RESULT
                )
                return
            first.append(following)
        yield pa.RecordBatch.from_pydict({"path": [written(chain(first, computed))], "few": [None]}, _RESULT)

    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    # If Spark has repeated a task, these are only the results of the successful attempt.
    results = rows.mapInArrow(write, "path STRING, few BINARY").collect()
    scratch_tables = [result["path"] for result in results if result["path"] is not None]
    few = [batch for result in results if result["few"] is not None for batch in pa.ipc.open_stream(result["few"])]
    try:
        if scratch_tables and few:
            scratch_tables.append(written(few))
        yield [Path(scratch) for scratch in scratch_tables], few
    finally:
        shutil.rmtree(folder)


def _in_schema(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the batches that have rows, in a schema with the same columns."""
    for batch in batches:
        if batch.num_rows:
            yield pa.RecordBatch.from_arrays(batch.columns, schema=schema)
