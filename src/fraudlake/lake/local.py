"""The lake on a laptop: Delta folders under one root, registered by name in every session."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock

from fraudlake import tables
from fraudlake.errors import MissingLakeError
from fraudlake.lake import (
    compaction,
    contents,
    delta_rs_reader,
    lake_format,
    lock,
    session,
    workload,
)
from fraudlake.lake.lake import Lake, layout
from fraudlake.lake.local_store import LocalStore
from fraudlake.lake.spark_store import SparkStore
from fraudlake.lake.store import LakeStore
from fraudlake.lake.writer import Writer
from fraudlake.settings import Settings
from fraudlake.text.sql_text import spark_literal

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from fraudlake.lake.definition import Change

_FEW = 20_000
"""Number of rows up to which Spark interprets plans, since compiling them takes longer."""
_NAMING = threading.RLock()
"""Streams of a process may need the name of the same table at once."""


class LocalLake(Lake):
    """A lake under ``settings.lake``: ``tables/``, ``checkpoints/``, ``models/``, ``landing/``, ``logs/``.

    Several processes may open the same lake. One that only reads it (``must_exist``) starts Spark on first use, and
    makes no tables: missing ones are empty.

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
        self._named: set[str] = set()
        self._is_read = must_exist
        if must_exist:
            self._require(change)
        else:
            lake_format.mark(self.root)
            self._make_tables(change)
        self._local.settings = self.settings

    @property
    def store(self) -> LakeStore:
        """The store that queries the tables without Spark."""
        return self._local

    @cached_property
    def _local(self) -> LocalStore:
        return LocalStore(self.settings, SparkStore(self))

    def _start(self) -> SparkSession:
        # Lakes of one process share neither the current database nor SQL settings.
        return session.start(self.settings, Path(self.log), self._java_options()).newSession()

    def _java_options(self) -> Sequence[str]:
        # A continuous stream lives long, however little it begins with.
        if self.settings.trigger == "continuous" or not self.steps:
            return ()
        return session.BRIEF_JAVA_OPTIONS if workload.is_brief(self, self.steps) else session.SELECTIVE_JAVA_OPTIONS

    @cached_property
    def spark(self) -> SparkSession:
        """Session for ad-hoc SQL, in which every table has its plain name: to name them takes seconds."""
        for table in (*contents.TABLES, *contents.VIEWS):
            self.name_of(table)
        self.session.sql(f"USE {self._database}")
        return self.session

    def _require(self, change: Change | None) -> None:
        """Refuse a root that is not a lake of this format, or has no bronze."""
        lake_format.require(self.root)
        missing = [table for table in contents.TABLES if not self.has(table)]
        for table in missing:
            self._local.require_no_files(table)
        if tables.BRONZE_TRANSACTIONS in missing:
            raise MissingLakeError(tables.missing(self.name, tables.BRONZE_TRANSACTIONS.name))
        self._define(is_read=True, change=change)

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
        if table.zorder and self.settings.clustering == "liquid":  # which delta-rs does not know
            self._name(table, layout(table, "liquid"), self._local.emptied(table))
        else:
            self._local.make(table)

    def has(self, table: tables.Table) -> bool:
        """Return whether a table exists."""
        return self._local.has(table)

    def name_of(self, table: tables.Table) -> str:
        """Return a table's name that is valid in every session, whatever its current catalog and schema."""
        with _NAMING:
            if table.name not in self._named:
                if isinstance(table, tables.View):
                    self._make_view(table)
                    self._named.add(table.name)
                else:
                    self._name(table, "USING DELTA", self._local.folder(table))
                    if self._is_read:  # otherwise opening the lake has added them
                        self._add_columns(self.table(table))
        return self._full_name(table)

    def _name(self, table: tables.Table, how: str, folder: Path) -> None:
        """Name a table in Spark's catalog, which all sessions of the process share."""
        with self.planning_for(0):
            if not self._named:
                location = spark_literal(str(self.root / "tables"))
                self.session.sql(f"CREATE DATABASE IF NOT EXISTS {self._database} LOCATION {location}")
            location = spark_literal(str(folder))
            self.session.sql(f"CREATE TABLE IF NOT EXISTS {self._full_name(table)} {how} LOCATION {location}")
        self._named.add(table.name)

    def _full_name(self, table: tables.Table) -> str:
        return f"spark_catalog.{self._database}.{table.name}"

    def writer(self, table: tables.Table) -> Writer:
        """Return the writer of a table: delta-rs if it supports the table's features, otherwise Spark."""
        with suppress(delta_rs_reader.UnsupportedError):
            return self._local.writer(self.table(table))
        return super().writer(table)

    def without_compaction(self, table: tables.Table, wait: float = -1) -> AbstractContextManager[Any]:
        """Block compaction by streams from now on: see :func:`fraudlake.lake.compaction.excluded`."""
        return compaction.excluded(self.root, table, wait)

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
        conf = self.session.conf
        options = self.settings.spark_options
        plain = {name: value for name, value in session.FEW_ROWS.items() if rows <= _FEW and name not in options}
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
