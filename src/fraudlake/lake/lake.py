"""The lake: its tables, checkpoints and folders, on this machine or in a workspace."""

from __future__ import annotations

import copy
import shutil
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import pyarrow as pa
from pyspark.sql import functions as F

from fraudlake import tables
from fraudlake.errors import FraudlakeError
from fraudlake.lake import definition
from fraudlake.lake.checkpoint import Checkpoint
from fraudlake.lake.commit import Commit, Detail
from fraudlake.lake.data_file import DataFile
from fraudlake.lake.spark_writer import SparkWriter
from fraudlake.lake.writer import Writer
from fraudlake.settings import Settings
from fraudlake.settings.features import DeclaredFeature, typed
from fraudlake.text.sql_text import spark_literal

if TYPE_CHECKING:
    from datetime import date

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from fraudlake.lake.definition import Change

_ATTEMPTS = 3


Query = tuple[tables.Table, str, str, int | None]
"""The arguments of :meth:`Lake.query`."""


class Lake(ABC):
    """An open lake, as :func:`open_lake` returns it."""

    is_in_workspace: ClassVar[bool]
    """Whether tables and files are in a Databricks workspace; otherwise they are on this machine's disk."""
    settings: Settings
    name: str
    """Its name in messages: its folder, or catalog and schema."""
    log: str
    """Path of Spark's log."""
    replays: Path
    """Folder of the records of ``quarantine --replay``."""
    steps: tuple[str, ...] = ()
    """The streams that this process runs, if it does nothing else; a local Spark is configured for the number of rows
    that they have to read."""
    folder: Path | None = None
    """Folder of the whole lake; None in a workspace."""
    models: Path | None = None
    """Folder of the models; None if the workspace keeps them."""

    @cached_property
    def session(self) -> SparkSession:
        """The session that reads and writes the tables, under the names that :meth:`name_of` returns.

        Lazy on this machine: a command that needs few rows never starts Spark.
        """
        return self._start()

    @abstractmethod
    def _start(self) -> SparkSession:
        """Start the session."""

    @cached_property
    def spark(self) -> SparkSession:
        """Session for ad-hoc SQL, in which every table has its plain name."""
        return self.session

    def in_session(self, spark: SparkSession) -> Self:
        """Return this lake in another session: that of a micro-batch.

        A micro-batch's function gets a separate session, whose current catalog and schema need not be the lake's
        (on Databricks they are the workspace's defaults).
        """
        inside = copy.copy(self)
        vars(inside).pop("spark", None)
        inside.session = spark
        return inside

    def __getstate__(self) -> dict[str, Any]:
        """Pickle the lake, for the process of a micro-batch, without its session."""
        return {name: value for name, value in vars(self).items() if name not in ("session", "spark")}

    def table(self, table: tables.Table) -> tables.Table:
        """Return a table with the columns and features that the settings declare for it."""
        return tables.with_declared(table, self.settings.columns, self.declared_features)

    @property
    def declared_features(self) -> list[tuple[DeclaredFeature, str]]:
        """The declared features with the types, in SQL, of their columns."""
        return typed(self.settings.features, self.settings.columns)

    def _define(self, is_read: bool, change: Change | None) -> None:
        """Complete the settings with the lake's definition; record new parts of it, unless the lake is only read.

        Raises:
            UsageError: the settings contradict the lake, or it cannot make a change. Nothing was written.
            FraudlakeError: other processes define the lake at the same time.
        """
        given = self.settings
        for _ in range(_ATTEMPTS):
            self.settings = given
            recorded = definition.read(self)
            self.settings, new = definition.settle(self, recorded, change)
            if is_read or not new:
                return
            if not self.has(tables.SILVER_DEFINITION):
                self._make(tables.SILVER_DEFINITION)
            if definition.write(self, new, recorded, change):
                return
            # Another process was first, and its record counts.
        raise FraudlakeError(f"other commands define {self.name} at the same time: run this one again")

    def record_definition(self) -> None:
        """Record the rest of the definition: see :func:`fraudlake.lake.definition.record_all`."""
        definition.record_all(self)

    @abstractmethod
    def _make(self, table: tables.Table) -> None:
        """Create a missing table."""

    @abstractmethod
    def has(self, table: tables.Table) -> bool:
        """Return whether a table exists."""

    def _make_view(self, view: tables.View) -> None:
        """Create a view, or replace it."""
        columns = ", ".join(f"{column.name} COMMENT {spark_literal(column.meaning)}" for column in view.fields)
        self.session.sql(
            f"CREATE OR REPLACE VIEW {self._full_name(view)} ({columns}) COMMENT {spark_literal(view.row)} AS "
            + self._query_of(view)
        )

    def _query_of(self, view: tables.View) -> str:
        """Return the SQL of a view in this lake."""
        delay = self.settings.max_out_of_orderness // timedelta(microseconds=1)
        return view.query.format(delay=delay, **{table.name: self.name_of(table) for table in view.reads})

    @abstractmethod
    def _full_name(self, table: tables.Table) -> str:
        """Return the name that :meth:`name_of` returns."""

    @abstractmethod
    def schema_of(self, table: tables.Table) -> StructType:
        """Return the columns that a table has now."""

    def column_types(self, table: tables.Table) -> dict[str, str]:
        """Return the columns that a table has now: their types in SQL, by name."""
        return {field.name: field.dataType.simpleString().upper() for field in self.schema_of(table)}

    def partition_columns(self, table: tables.Table) -> tuple[str, ...]:
        """Return the columns that a table is partitioned by; a liquid table has none."""
        return self.detail(table).partition_columns

    def _add_columns(self, table: tables.Table) -> None:
        """Add the columns that an older table lacks; they are null in its present rows.

        Args:
            table: the table as it should be.

        Raises:
            UsageError: a column exists with another type, or in another case.
        """
        missing = tables.require_types(table, self.column_types(table))
        if missing:
            columns = ", ".join(f"{column.name} {column.type}" for column in missing)
            self.session.sql(f"ALTER TABLE {self.name_of(table)} ADD COLUMNS ({columns})")

    @abstractmethod
    def name_of(self, table: tables.Table) -> str:
        """Return a table's name that is valid in every session, whatever its current catalog and schema."""

    def read(self, table: tables.Table) -> DataFrame:
        """Return a table as it is now."""
        return self.session.table(self.name_of(table))

    def read_stream(self, table: tables.Table, by_time: str | None = None, max_bytes: str | None = None) -> DataFrame:
        """Return a table as a stream of its appended rows; commits that delete or rewrite rows are skipped.

        The rows present when the stream starts come in the order of their files or, with ``by_time``, the column that
        gets a watermark, in the order of event time (Delta Lake documentation, "Process initial snapshot without data
        being dropped"). ``max_bytes`` is the approximate size of a micro-batch.
        """
        reader = self.session.readStream.option("skipChangeCommits", "true")
        if max_bytes is not None:
            reader = reader.option("maxBytesPerTrigger", max_bytes)
        return reader.option("withEventTimeOrder", "true" if by_time else "false").table(self.name_of(table))

    def rows(self, table: tables.Table) -> pa.Table:
        """Return all rows of a small table as it is now."""
        return self.query(table, "*")

    def query(self, table: tables.Table, columns: str, clauses: str = "", version: int | None = None) -> pa.Table:
        """Return the few rows of ``SELECT columns FROM table clauses``, now or in a version of the table.

        The SQL must be valid in Spark and in DataFusion; :func:`literal` writes texts. DataFusion converts names
        without quotes to lower case, so ``accountId`` cannot be named.
        """
        return self.union((table, columns, clauses, version))

    def union(self, *queries: Query) -> pa.Table:
        """Return the rows of several queries, each with the arguments of :meth:`query`, by one query of Spark."""
        selects = [
            select(columns, self._in_version(table, version), clauses) for table, columns, clauses, version in queries
        ]
        return self.session.sql(" UNION ALL ".join(selects)).toArrow()

    def joined(self, statement: str, given: pa.Table, *read: tables.Table) -> pa.Table:
        """Return the rows of a query that joins Arrow rows, ``given``, with tables.

        Args:
            statement: SQL that is valid in Spark and in DataFusion, except for ``explode``, which becomes DataFusion's
                unnest; tables have their plain names, and names with capital letters are in backticks.
            given: rows without nested columns.
            read: the tables.
        """
        for table in read:
            self.read(table).createOrReplaceTempView(table.name)
        self.session.createDataFrame(given).createOrReplaceTempView("given")
        return self.session.sql(statement).toArrow()

    def _in_version(self, table: tables.Table, version: int | None) -> str:
        return self.name_of(table) if version is None else f"{self.name_of(table)} VERSION AS OF {version}"

    def count(self, table: tables.Table, condition: str = "", version: int | None = None) -> int:
        """Count the rows of a table that fulfil a condition in SQL, or all; now or in a version of the table."""
        clauses = f"WHERE {condition}" if condition else ""
        return int(self.query(table, "count(*) AS total", clauses, version)["total"][0].as_py())

    def has_rows(self, table: tables.Table, condition: str = "") -> bool:
        """Return whether a table has rows, or rows that fulfil a condition in SQL."""
        where = f"WHERE {condition} " if condition else ""
        return len(self.query(table, "true AS is_present", f"{where}LIMIT 1")) > 0

    def read_version(self, table: tables.Table, version: int) -> DataFrame:
        """Return a table as it was in a version."""
        return self.session.read.option("versionAsOf", version).table(self.name_of(table))

    def writer(self, table: tables.Table) -> Writer:
        """Return the writer of a table: Spark's, unless the lake has a faster one."""
        return SparkWriter(self, self.table(table))

    def upsert(self, rows: DataFrame, table: tables.Table, keys: tuple[str, ...], dates: list[date]) -> None:
        """Replace the rows of a table with the same keys, and insert the others.

        Args:
            rows: the columns of the table.
            table: the table.
            keys: the columns that identify a row.
            dates: all values of ``date`` in the rows.
        """
        self.writer(table).merge(rows.withColumn("gone", F.lit(False)), keys, dates)

    def upsert_rows(self, rows: pa.Table, table: tables.Table, keys: tuple[str, ...]) -> None:
        """Replace the rows of a table with the same keys by Arrow rows, and insert the others."""
        gone = pa.nulls(len(rows), pa.bool_()).fill_null(False)
        self.writer(table).merge_rows(rows.append_column("gone", gone), keys)

    def apply_changes(self, changes: DataFrame, table: tables.Table, keys: tuple[str, ...]) -> None:
        """Upsert changes, and delete rows.

        ``changes`` has the table's columns and ``gone``: if that is true, the row with the same keys is deleted.
        """
        self.writer(table).merge(changes, keys)

    def replace(
        self, rows: DataFrame, table: tables.Table, record: dict[str, Any], days: tuple[date, date] | None = None
    ) -> None:
        """Replace a table's rows, or those of some days, in one commit that streams skip.

        Delta's ``RESTORE`` and a plain overwrite can add files without removing any, which streams then take for new
        rows (Databricks documentation, "Restore a Delta table"). So the commit says that it changes no data
        (``dataChange``), as a compaction does. No other process may write the table meanwhile.

        Args:
            rows: rows, in columns of :meth:`table`; columns that they lack are null. They may be read from the table.
            table: the table.
            record: the commit's metadata, which :attr:`Commit.record` returns.
            days: the first and the last ``date`` to replace; None replaces all rows.
        """
        SparkWriter(self, self.table(table)).replace(rows, record, days)

    def remove(self, table: tables.Table, condition: str, record: dict[str, Any]) -> None:
        """Remove the rows that fulfil a condition in SQL, in one commit, which streams skip.

        It is a replacement by no rows, since not every compute can attach metadata to a ``DELETE``.
        """
        SparkWriter(self, self.table(table)).remove(condition, record)

    @abstractmethod
    def version(self, table: tables.Table) -> int:
        """Return a table's current version."""

    def history(self, table: tables.Table, limit: int | None = None) -> list[Commit]:
        """Return a table's commits in its log, the newest first; at most ``limit``."""
        latest = "" if limit is None else f" LIMIT {limit}"
        history = self.session.sql(f"DESCRIBE HISTORY {self.name_of(table)}{latest}").selectExpr(
            "version",
            "operation",
            "unix_millis(timestamp) AS timestamp",
            "operationParameters",
            "operationMetrics",
            "engineInfo",
            "userMetadata",
        )
        return [Commit.of(row.asDict()) for row in history.collect()]

    def data_version(self, table: tables.Table) -> int:
        """Return the table version that last changed its rows."""
        return max((commit.version for commit in self.history(table) if commit.changes_rows), default=-1)

    def identity(self, table: tables.Table) -> str:
        """Return the id that Delta gave a table when it was made; a table made in its place has another one."""
        return self.detail(table).id

    def detail(self, table: tables.Table) -> Detail:
        """Return a table's metadata from its log."""
        detail = self.session.sql(f"DESCRIBE DETAIL {self.name_of(table)}")
        row = detail.select("*", F.unix_millis("createdAt").alias("created_millis")).collect()[0]
        layout = (tuple(row["partitionColumns"]), tuple(row["clusteringColumns"]))
        return Detail(row["id"], *layout, row["properties"], row["numFiles"] < 2, row["created_millis"])

    def file_retention(self, table: tables.Table) -> timedelta:
        """Return how long VACUUM keeps the files that have left a table."""
        return self.settings.retention

    def files(self, table: tables.Table) -> list[DataFile]:
        """Return the files of a table as it is now."""
        columns = self.partition_columns(table)
        file = F.col("_metadata")
        found = self.read(table).select(
            file["file_path"].alias("path"),
            file["file_size"].alias("size"),
            F.unix_millis(file["file_modification_time"]).alias("millis"),
            *(F.col(column).cast("string") for column in columns),
        )
        return [
            DataFile(row["path"], row["size"], row["millis"], {column: row[column] for column in columns})
            for row in found.distinct().collect()
        ]

    def may_have_unused_files(self, table: tables.Table, retention: timedelta) -> bool:
        """Return whether VACUUM may find files to remove; true if only VACUUM can tell."""
        return True

    def remove_old_log(self, table: tables.Table) -> None:  # noqa: B027 - Delta does it with a commit of Spark
        """Remove old commits from a table's log, if no writer does so by itself."""

    @abstractmethod
    def session_for_files(self, table: tables.Table, size: int) -> SparkSession:
        """Return a session in which OPTIMIZE makes a table's files about ``size`` bytes large."""

    @property
    def checkpoints(self) -> Path:
        """Folder of the checkpoints."""
        return self.settings.checkpoints_path

    def checkpoint(self, step: str) -> Checkpoint:
        """Return a stream's checkpoint."""
        return Checkpoint(step, self.checkpoints / step)

    @contextmanager
    def scratch_checkpoint(self) -> Iterator[Path]:
        """Return a folder for the checkpoint of a stream, and remove it at the end of the block."""
        folder = self.checkpoints / "scratch" / uuid.uuid4().hex
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            with suppress(OSError):  # another process has one, too
                folder.parent.rmdir()

    def planning_for(self, rows: float) -> AbstractContextManager[None]:
        """Plan the queries and streams that start in the block for a number of rows, if the lake can."""
        return nullcontext()

    @abstractmethod
    def exclusive(self, step: str) -> AbstractContextManager[None]:
        """Lock a step for this process, if the lake can.

        Raises:
            FraudlakeError: another process has the lock.
        """

    def without_compaction(self, table: tables.Table, wait: float = -1) -> AbstractContextManager[Any]:
        """Block compaction by streams while a table's files are rewritten, if the lake can.

        Otherwise an OPTIMIZE that takes longer than fifty commits of a stream would always fail with a conflict.
        """
        return nullcontext()


def select(columns: str, table: str, clauses: str) -> str:
    """Return a query of one table."""
    return " ".join(("SELECT", columns, "FROM", table, clauses))


def layout(table: tables.Table, clustering: str) -> str:
    """Return the part of ``CREATE TABLE`` after the name: columns, format, clustering and properties."""
    if clustering == "liquid" and table.zorder:  # which excludes partitions
        arranged = f" CLUSTER BY ({', '.join(table.partitioned_by + table.zorder)})"
    else:
        arranged = f" PARTITIONED BY ({', '.join(table.partitioned_by)})" if table.partitioned_by else ""
    properties = ", ".join(f"'{name}' = '{value}'" for name, value in table.properties)
    return f"({table.columns}) USING DELTA{arranged}" + (f" TBLPROPERTIES ({properties})" if properties else "")
