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

from fraudlake import tables
from fraudlake.errors import FraudlakeError
from fraudlake.lake import definition
from fraudlake.lake.checkpoint import Checkpoint
from fraudlake.lake.spark_writer import SparkWriter
from fraudlake.lake.store import declared
from fraudlake.lake.writer import Writer
from fraudlake.settings import Settings
from fraudlake.settings.features import DeclaredFeature, typed
from fraudlake.text.sql_text import spark_literal
from fraudlake.values import summed_amount

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from fraudlake.lake.definition import Change
    from fraudlake.lake.store import LakeStore

_ATTEMPTS = 3


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

    @property
    @abstractmethod
    def store(self) -> LakeStore:
        """The store that queries the tables in this lake's session or, on this machine, without Spark."""

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
        """Pickle the lake, for the process of a micro-batch, without its session and what is cached."""
        return {name: value for name, value in vars(self).items() if name not in ("session", "spark", "_local")}

    def table(self, table: tables.Table) -> tables.Table:
        """Return a table with the columns and features that the settings declare for it."""
        return declared(table, self.settings)

    @property
    def declared_features(self) -> list[tuple[DeclaredFeature, str]]:
        """The declared features with the types, in SQL, of their columns."""
        return typed(self.settings.features, self.settings.silver_columns)

    def _define(self, is_read: bool, change: Change | None) -> None:
        """Complete the settings with the lake's definition; record new parts of it, unless the lake is only read.

        Raises:
            UsageError: the settings contradict the lake, or it cannot make a change. Nothing was written.
            FraudlakeError: other processes define the lake at the same time.
        """
        original = self.settings
        for _ in range(_ATTEMPTS):
            self.settings = original
            recorded = definition.read(self)
            self.settings, new = definition.resolve(self, recorded, change)
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
        amount = summed_amount(self.settings.silver_columns)
        names = {table.name: self.name_of(table) for table in view.reads}
        return view.query.format(delay=delay, amount=amount, **names)

    @abstractmethod
    def _full_name(self, table: tables.Table) -> str:
        """Return the name that :meth:`name_of` returns."""

    def _add_columns(self, table: tables.Table) -> None:
        """Add the columns that an older table lacks; they are null in its present rows.

        Args:
            table: the table as it should be.

        Raises:
            UsageError: a column exists with another type, or in another case.
        """
        missing = tables.require_types(table, self.store.column_types(table))
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

    def read_version(self, table: tables.Table, version: int) -> DataFrame:
        """Return a table as it was in a version."""
        return self.session.read.option("versionAsOf", version).table(self.name_of(table))

    def writer(self, table: tables.Table) -> Writer:
        """Return the writer of a table: Spark's, unless the lake has a faster one."""
        return SparkWriter(self, table)

    def file_retention(self, table: tables.Table) -> timedelta:
        """Return how long VACUUM keeps the files that have left a table."""
        return self.settings.retention

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


def layout(table: tables.Table, clustering: str) -> str:
    """Return the part of ``CREATE TABLE`` after the name: columns, format, clustering and properties."""
    if clustering == "liquid" and table.zorder:  # which excludes partitions
        arranged = f" CLUSTER BY ({', '.join(table.partitioned_by + table.zorder)})"
    else:
        arranged = f" PARTITIONED BY ({', '.join(table.partitioned_by)})" if table.partitioned_by else ""
    properties = ", ".join(f"'{name}' = '{value}'" for name, value in table.properties)
    return f"({table.columns}) USING DELTA{arranged}" + (f" TBLPROPERTIES ({properties})" if properties else "")
