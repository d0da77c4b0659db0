"""The lake on a laptop: Delta folders under one root, registered by name in every session."""

from __future__ import annotations

import atexit
import hashlib
import json
import shutil
import tempfile
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from filelock import FileLock
from pyspark.sql.types import StructType

from fraudlake import tables
from fraudlake.errors import FraudlakeError, MissingLakeError
from fraudlake.lake import (
    compaction,
    contents,
    delta_rs_reader,
    lake_format,
    lock,
    session,
    workload,
)
from fraudlake.lake.commit import Commit, Detail
from fraudlake.lake.data_file import DataFile
from fraudlake.lake.delta_rs_writer import DeltaRsWriter, is_plain
from fraudlake.lake.lake import Lake, Query, layout, select
from fraudlake.lake.writer import Writer
from fraudlake.settings import Settings
from fraudlake.text.sql_text import spark_literal

if TYPE_CHECKING:
    from datetime import timedelta

    from pyspark.sql import SparkSession

    from fraudlake.lake.definition import Change

_FEW = 20_000
"""Number of rows up to which Spark interprets plans, since compiling them takes longer."""
_KEEPS_LOG = {"delta.enableExpiredLogCleanup": "false"}
"""Otherwise any commit may remove old parts of the log, by the clock alone, even if a stream has still to read them."""
_NAMING = threading.RLock()
"""Streams of a process may need the name of the same table at once."""


class LocalLake(Lake):
    """A lake under ``settings.lake``: ``tables/``, ``checkpoints/``, ``models/``, ``landing/``, ``logs/``.

    Several processes may open the same lake. One that only reads it (``must_exist``) starts Spark on first use, and
    replaces missing tables by empty ones outside the lake.

    Raises:
        UsageError: the root is not a folder, cannot be written, or has a character in its path that Delta refuses.
        FraudlakeError: another version of fraudlake made the lake, or Spark does not start.
        MissingLakeError: with ``must_exist``: there is no lake, or it has no bronze yet.
    """

    is_in_workspace = False

    def __init__(self, settings: Settings, must_exist: bool = False, change: Change | None = None) -> None:
        """Open the lake that the settings name, perhaps with a changed definition; it has a separate session."""
        self.settings = settings
        self.root = self.folder = settings.lake.absolute()
        self._database = f"lake_{hashlib.sha256(str(self.root).encode()).hexdigest()[:8]}"
        self.name = str(self.root)
        self.log = str(self.root / "logs" / "spark.log")
        self.replays = self.root / "replays"
        self.models = self.root / "models"
        self._stand_ins: dict[str, Path] = {}
        self._named: set[str] = set()
        self._is_read = must_exist
        if must_exist:
            self._require(change)
        else:
            lake_format.mark(self.root)
            self._make_tables(change)

    def _start(self) -> SparkSession:
        # A continuous stream lives long, however little it begins with.
        is_brief = self.settings.trigger != "continuous" and workload.is_brief(self, self.steps)
        # Lakes of one process share neither the current database nor SQL settings.
        return session.start(self.settings, Path(self.log), is_brief).newSession()

    @cached_property
    def spark(self) -> SparkSession:
        """Session for ad-hoc SQL, in which every table has its plain name: to name them takes seconds."""
        for table in (*contents.TABLES, *contents.VIEWS):
            self.name_of(table)
        self.session.sql(f"USE {self._database}")
        return self.session

    def _require(self, change: Change | None) -> None:
        """Refuse a root that is not a lake of this format, or has no bronze; make other missing tables."""
        lake_format.require(self.root)
        missing = [table for table in contents.TABLES if not self.has(table)]
        for table in missing:
            self._require_no_files(table)
        if tables.BRONZE_TRANSACTIONS in missing:
            raise MissingLakeError(tables.missing(self.name, tables.BRONZE_TRANSACTIONS.name))
        self._define(is_read=True, change=change)
        if missing:
            folder = Path(tempfile.mkdtemp(prefix="fraudlake-"))
            atexit.register(shutil.rmtree, folder, ignore_errors=True)
            for table in map(self.table, missing):
                DeltaTable.create(folder / table.name, table.schema)
                self._stand_ins[table.name] = folder / table.name

    def _make_tables(self, change: Change | None) -> None:
        """Create missing tables, and complete existing ones."""
        with FileLock(self.root / ".lock"):
            self._define(is_read=False, change=change)
            for table in map(self.table, contents.TABLES):
                if self.has(table):
                    self._add_columns(table)
                else:
                    self._make(table)

    def _make(self, table: tables.Table) -> None:
        self._require_no_files(table)
        folder = self._folder(table)
        # A process that was killed here has left a folder without a commit, which Spark refuses.
        shutil.rmtree(folder, ignore_errors=True)
        if table.zorder and self.settings.clustering == "liquid":  # which delta-rs does not know
            self._name(table, layout(table, "liquid"))
        else:
            arranged, properties = list(table.partitioned_by), _KEEPS_LOG | dict(table.properties)
            DeltaTable.create(folder, table.schema, partition_by=arranged, configuration=properties)

    def _require_no_files(self, table: tables.Table) -> None:
        """Check that a table without a log has no files of rows."""
        folder = self._folder(table)
        if any(folder.rglob("*.parquet")):
            raise FraudlakeError(f"{folder} has files of rows, and its _delta_log is gone: restore it")

    def has(self, table: tables.Table) -> bool:
        """Return whether a table exists."""
        return DeltaTable.is_deltatable(str(self._folder(table)))

    def schema_of(self, table: tables.Table) -> StructType:
        """Return the columns that a table has now."""
        # Delta writes a schema as Spark does; asking Spark for it takes longer.
        return StructType.fromJson(json.loads(self._open(table).schema().to_json()))

    def partition_columns(self, table: tables.Table) -> tuple[str, ...]:
        """Return the columns that a table is partitioned by; a liquid table has none."""
        return tuple(self._open(table).metadata().partition_columns)

    def name_of(self, table: tables.Table) -> str:
        """Return a table's name that is valid in every session, whatever its current catalog and schema."""
        with _NAMING:
            if table.name not in self._named:
                if isinstance(table, tables.View):
                    self._make_view(table)
                    self._named.add(table.name)
                else:
                    self._name(table, "USING DELTA")
                    if self._is_read:  # otherwise opening the lake has added them
                        self._add_columns(self.table(table))
        return self._full_name(table)

    def _name(self, table: tables.Table, how: str) -> None:
        """Name a table in Spark's catalog, which all sessions of the process share."""
        with self.planning_for(0):
            if not self._named:
                location = spark_literal(str(self.root / "tables"))
                self.session.sql(f"CREATE DATABASE IF NOT EXISTS {self._database} LOCATION {location}")
            location = spark_literal(str(self._folder(table)))
            self.session.sql(f"CREATE TABLE IF NOT EXISTS {self._full_name(table)} {how} LOCATION {location}")
        self._named.add(table.name)

    def _full_name(self, table: tables.Table) -> str:
        return f"spark_catalog.{self._database}.{table.name}"

    def _folder(self, table: tables.Table) -> Path:
        return self._stand_ins.get(table.name) or self.root / "tables" / table.name

    def _open(self, table: tables.Table, version: int | None = None) -> DeltaTable:
        return DeltaTable(self._folder(table), version)

    def query(self, table: tables.Table, columns: str, clauses: str = "", version: int | None = None) -> pa.Table:
        """Return the few rows of ``SELECT columns FROM table clauses``, now or in a version of the table."""
        delta = self._open(table, version)
        if not self._is_readable(table, delta):
            return super().union((table, columns, clauses, version))
        return delta_rs_reader.query(select(columns, table.name, clauses), {table.name: delta})

    def joined(self, statement: str, given: pa.Table, *read: tables.Table) -> pa.Table:
        """Return the rows of a query that joins Arrow rows with tables: Spark would take seconds to start."""
        opened = {table.name: self._open(table) for table in read}
        if not all(self._is_readable(table, opened[table.name]) for table in read):
            return super().joined(statement, given, *read)
        with tempfile.TemporaryDirectory(prefix="fraudlake-") as folder:
            write_deltalake(folder, given)
            opened["given"] = DeltaTable(folder)
            return delta_rs_reader.query(statement.replace("explode(", "unnest("), opened)

    def _is_readable(self, table: tables.Table, delta: DeltaTable) -> bool:
        return delta_rs_reader.is_readable(delta)

    def union(self, *queries: Query) -> pa.Table:
        """Return the rows of several queries, one after the other: see :meth:`query`."""
        return pa.concat_tables((self.query(*one) for one in queries), promote_options="default")

    def writer(self, table: tables.Table) -> Writer:
        """Return the writer of a table: delta-rs if it supports the table's features, otherwise Spark."""
        delta = self._open(table)
        if not is_plain(delta):
            return super().writer(table)
        compact = partial(self._compact, table)
        return DeltaRsWriter(delta, self._folder(table), self.table(table), self.root / "spool", compact)

    def _compact(self, table: tables.Table) -> None:
        compaction.compact(self.root, table, self.settings, partial(self.files, table), partial(self.writer, table))

    def without_compaction(self, table: tables.Table, wait: float = -1) -> AbstractContextManager[Any]:
        """Block compaction by streams from now on: see :func:`fraudlake.lake.compaction.excluded`."""
        return compaction.excluded(self.root, table, wait)

    def version(self, table: tables.Table) -> int:
        """Return a table's current version."""
        log = self._folder(table) / "_delta_log"
        return max(int(commit.stem) for commit in log.glob("*.json") if commit.stem.isdigit())

    def history(self, table: tables.Table, limit: int | None = None) -> list[Commit]:
        """Return a table's commits in its log, the newest first; at most ``limit``."""
        commits = [Commit.of(entry) for entry in self._open(table).history(limit)]
        # delta-rs finds none if the lake's path has a # or a question mark (seen in 1.6).
        return commits or super().history(table, limit)

    def identity(self, table: tables.Table) -> str:
        """Return the id that Delta gave a table when it was made; a table made in its place has another one."""
        return str(self._open(table).metadata().id)

    def detail(self, table: tables.Table) -> Detail:
        """Return a table's metadata from its log."""
        delta = self._open(table)
        if not is_plain(delta):
            return super().detail(table)
        metadata = delta.metadata()
        folders = [file.rpartition("/")[0] for file in delta.file_uris()]
        is_compact = len(folders) == len(set(folders))
        columns, created = tuple(metadata.partition_columns), metadata.created_time
        return Detail(str(metadata.id), columns, (), metadata.configuration, is_compact, created)

    def files(self, table: tables.Table) -> list[DataFile]:
        """Return the files of a table as it is now, from its log."""
        delta = self._open(table)
        return delta_rs_reader.files(delta) if delta_rs_reader.is_readable(delta) else super().files(table)

    def may_have_unused_files(self, table: tables.Table, retention: timedelta) -> bool:
        """Return whether VACUUM would find files to remove, since Spark's takes seconds per table."""
        delta = self._open(table)
        hours = int(retention.total_seconds() // 3600)
        return not is_plain(delta) or bool(
            delta.vacuum(hours, dry_run=True, enforce_retention_duration=False, full=True)
        )

    def remove_old_log(self, table: tables.Table) -> None:
        """Remove commits before a checkpoint of the log that are older than ``delta.logRetentionDuration``."""
        delta = self._open(table)
        if is_plain(delta):
            delta.cleanup_metadata()

    def session_for_files(self, table: tables.Table, size: int) -> SparkSession:
        """Return a session in which OPTIMIZE makes files about ``size`` bytes large.

        Delta's open-source release has a setting of the session for it, and no property of the table.
        """
        separate = self.session.newSession()
        separate.conf.set("spark.databricks.delta.optimize.maxFileSize", size)
        return separate

    @contextmanager
    def planning_for(self, rows: float) -> Iterator[None]:
        """Have Spark interpret the plans of queries and streams that start in the block, if they read few rows.

        Generating and compiling code for a plan, and planning it again after each stage, takes seconds.
        """
        conf, given = self.session.conf, self.settings.spark_options
        plain = {name: value for name, value in session.FEW_ROWS.items() if rows <= _FEW and name not in given}
        before = {name: conf.get(name, None) for name in plain}
        for name, value in plain.items():
            conf.set(name, value)
        try:
            yield
        finally:
            for name, earlier in before.items():
                if earlier is None:
                    conf.unset(name)
                else:
                    conf.set(name, earlier)

    @contextmanager
    def exclusive(self, step: str) -> Iterator[None]:
        """Lock a step for this process; the operating system releases the lock when the process ends, however it ends.

        Raises:
            FraudlakeError: another process has the lock.
        """
        with lock.exclusive(self.root / "locks" / step, step, self.root):
            yield
